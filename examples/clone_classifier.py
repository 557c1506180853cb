"""Clone a scikit-learn classifier from its probabilities.

`unrelu.connect` takes the estimator itself, and shows what its users see: `predict_proba`.
"""

import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import unrelu

images, digits = load_digits(return_X_y=True)
images = images / 16.0
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # 30 passes are enough for an example
    model = MLPClassifier((16,), max_iter=30, random_state=0).fit(images, digits)

oracle = unrelu.connect(model)
result = unrelu.extract(oracle, rng=0)
print(result.status.name, "from", result.queries.total, "queries")
print(result.network.architecture, "with", result.network.parameters, "parameters")

labels = model.classes_[result.network(images).argmax(axis=1)]
print(f"labels of {np.mean(labels == model.predict(images)):.1%} of the digits agree")
