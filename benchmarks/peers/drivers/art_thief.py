"""adversarial-robustness-toolbox: KnockoffNets and CopycatCNN with a torch thief.

Both train the thief on the victim's answers to random inputs; the number of queries
is the one unrelu spent. ``default``: labels, cross-entropy, batches of one, ten epochs,
as the classes come. ``tuned``: the answers themselves (``use_probability``), mean
square loss, batches of 64, 100 epochs. The toolbox trains torch classifiers in float32.
"""

import numpy as np
import torch
from art.attacks import extraction
from art.estimators.classification import BlackBoxClassifier, PyTorchClassifier
from peer_client import Task


def main(name: str) -> None:
    task = Task()
    torch.manual_seed(task.seed)
    torch.set_num_threads(1)
    np.random.seed(task.seed)  # noqa: NPY002 (the toolbox draws from the global state)
    victim = BlackBoxClassifier(
        task.ask, input_shape=(task.input_dim,), nb_classes=task.output_dim, preprocessing=None
    )
    (width,) = task.hidden or [128]
    model = torch.nn.Sequential(
        torch.nn.Linear(task.input_dim, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, task.output_dim),
    )
    tuned = task.setting == "tuned"
    thief = PyTorchClassifier(
        model=model,
        loss=torch.nn.MSELoss() if tuned else torch.nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        input_shape=(task.input_dim,),
        nb_classes=task.output_dim,
        preprocessing=None,
        device_type="cpu",
    )
    options = {"batch_size_fit": 64, "nb_epochs": 100, "use_probability": True} if tuned else {}
    kind = getattr(extraction, name)
    attack = kind(classifier=victim, batch_size_query=4096, nb_stolen=task.rows, **options)
    x = np.random.default_rng(task.seed).standard_normal((task.rows, task.input_dim))
    stolen = attack.extract(x, thieved_classifier=thief)
    first, last = model[0], model[2]
    task.finish(
        lambda points: stolen.predict(points.astype(np.float32)),
        claim="none",
        weights=[first.weight.detach().numpy(), last.weight.detach().numpy()],
        biases=[first.bias.detach().numpy(), last.bias.detach().numpy()],
    )
