"""Learn a deep network in two halves, from its labelled samples alone.

The network below has four layers: a random rotation, tanh, a cut layer of sign units
with a high threshold, and a ReLU network above the cut. Nothing but (x, f(x)) is used.
"""

import numpy as np

from unrelu.modular import learn_modular

rng = np.random.default_rng(0)
n = 8
rotation, _ = np.linalg.qr(rng.standard_normal((n, n)))
inner, outer = rng.uniform(0.2, 1.0, (12, n)), rng.uniform(0.2, 1.0, 12)


def network(x: np.ndarray) -> np.ndarray:
    hidden = np.tanh(x @ rotation.T)
    cut = (hidden > np.tanh(2.0)).astype(float)  # the same as rotation @ x > 2
    return np.maximum(cut @ inner.T - 0.1, 0.0) @ outer


x = rng.standard_normal((400_000, n))
result = learn_modular(x, network(x), degree=3, rng=1)
print(result)

cosines = result.directions @ rotation.T
angles = np.arccos(np.clip(cosines.max(axis=1), -1.0, 1.0))
print(f"lower part: {len(result.directions)} units, largest angle {angles.max():.1e} rad")

fresh = rng.standard_normal((20_000, n))
truth = network(fresh)
error = np.sqrt(np.mean((result.predict(fresh) - truth) ** 2)) / truth.std()
print(f"whole network: {error:.1%} of the spread on fresh inputs")
