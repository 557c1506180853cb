"""adversarial-robustness-toolbox: FunctionallyEquivalentExtraction, in float64.

Its classifiers have at least two outputs: a scalar target y is shown to it as (y, -y),
one query all the same. ``default``: every argument of ``extract`` as it comes, 2,000
Gaussian inputs for the last layer. ``tuned``: steps of 1e-3 instead of 0.1 at the critical
points, so that they cross no other hyperplane, and small weights accepted as they are
(best of eight settings, tried on four to six networks 20-10-1 with other seeds).
"""

import art.config
import numpy as np
from peer_client import Task

art.config.ART_NUMPY_DTYPE = np.float64  # read at each prediction; float32 otherwise

from art.attacks.extraction import FunctionallyEquivalentExtraction  # noqa: E402
from art.estimators.classification import BlackBoxClassifierNeuralNetwork  # noqa: E402

TUNED = {"delta_init_value": 1e-3, "d2_min": 1e-9, "delta_sign": 1e-3}

task = Task()
np.random.seed(task.seed)  # noqa: NPY002 (the toolbox draws from the global state)


def ask(x: np.ndarray) -> np.ndarray:
    y = task.ask(x)
    return np.hstack([y, -y]) if task.output_dim == 1 else y


victim = BlackBoxClassifierNeuralNetwork(
    ask, input_shape=(task.input_dim,), nb_classes=max(2, task.output_dim), preprocessing=None
)
attack = FunctionallyEquivalentExtraction(victim, num_neurons=sum(task.hidden or []))
samples = np.random.default_rng(task.seed).standard_normal((2000, task.input_dim))
try:
    attack.extract(samples, **(TUNED if task.setting == "tuned" else {}))
except AssertionError as error:  # its own check: as many critical points as neurons
    task.finish(None, claim="failed", message=str(error))
else:
    w0, b0 = attack.w_0, attack.b_0
    w1, b1 = attack.w_1[:, : task.output_dim], attack.b_1[: task.output_dim]
    task.finish(
        lambda x: (w1.T @ np.maximum(w0.T @ x.T + b0, 0.0) + b1).T,
        claim="exact",
        weights=[w0.T, w1.T],
        biases=[b0.ravel(), b1.ravel()],
    )
