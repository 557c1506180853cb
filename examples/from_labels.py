"""Recover a network from yes and no alone.

The model says whether its score is positive, and nothing else.
"""

import numpy as np

import unrelu

rng = np.random.default_rng(0)
score = unrelu.planted.random_network(10, 4, 1, rng=0)
middle = np.median(score(rng.standard_normal((4000, 10))))


def approve(rows: np.ndarray) -> np.ndarray:
    return (score(rows)[:, 0] > middle).astype(float)


oracle = unrelu.connect(approve, input_dim=10, output_dim=1)
result = unrelu.extract_from_labels(oracle, rng=0)
print(result.status.name, "from", result.queries.total, "labels,", result.width, "hidden units")
print("labels leave free:", "; ".join(result.free))

fresh = rng.standard_normal((100_000, 10))
print(f"labels that agree: {np.mean(result.predict(fresh) == approve(fresh)):.3%}")
