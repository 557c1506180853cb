"""Fill images with noise that a classifier does not see.

The first layer has 12 units, the images 64 pixels: most directions do not reach the network.
"""

import numpy as np
from sklearn.datasets import load_digits

import unrelu

model, _ = unrelu.planted.digits_classifier(12, 10, rng=0, iterations=20)
images = load_digits().data[:100] / 16.0

span = unrelu.recover_span(model, rng=0)
print(span.status.name, "the model sees", span.rank, "of", model.input_dim, "directions")

hidden = unrelu.obfuscate(images, span, noise=10.0, rng=0)
same = model(hidden.images).argmax(axis=1) == model(images).argmax(axis=1)
print(f"labels unchanged: {same.mean():.0%}")

alike = [np.corrcoef(a, b)[0, 1] for a, b in zip(images, hidden.images, strict=True)]
print(f"correlation of an image with its noisy self: {np.median(alike):.2f}")
