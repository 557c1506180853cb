"""Learn a network from labelled samples, and use it in a scikit-learn pipeline.

No query is sent: there are 20,000 rows with Gaussian inputs of any mean and scale, and their
labels.
"""

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unrelu import HermiteNetRegressor, learn_from_samples, planted

rng = np.random.default_rng(0)
truth = planted.random_network(8, 3, 1, rng=5)
x = rng.standard_normal((20_000, 8))
y = truth(x)[:, 0] + 0.01 * rng.standard_normal(len(x))

result = learn_from_samples(x, y, rng=0)
print(result.status.name, "with", result.width, "units")

measured = 20.0 + 5.0 * x  # in units of their own
model = make_pipeline(StandardScaler(), HermiteNetRegressor(random_state=0))
model.fit(measured[:15_000], y[:15_000])
print(f"R² on rows held back: {model.score(measured[15_000:], y[15_000:]):.4f}")
