"""What the directions that a model looks at give away: its kind of layer, and its blind spots."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput, UnreluError
from unrelu.oracles import Oracle
from unrelu.result import RecoveryResult
from unrelu.span.obfuscate import obfuscate

__all__ = ["Obfuscated", "check_images", "example_images", "first_rows", "name_layer",
           "seen_span", "show_blind"]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Obfuscated:
    """Images before and after noise that the model does not see.

    ``before`` and ``after`` are ``(n, d)``; ``change`` is the largest change of
    an answer over the answers' spread, ``correlation`` that of the images.
    """

    before: FloatArray
    after: FloatArray
    change: float
    correlation: float
    noise: float


def check_images(shape: tuple[int, int] | None, examples: FloatArray | None, inputs: int) -> None:
    """Refuse images that are none of the target's inputs."""
    if shape is not None and shape[0] * shape[1] != inputs:
        raise InvalidInput(
            f"the target takes {inputs} inputs, not {shape[0]} by {shape[1]} pixels (--image)"
        )
    if examples is not None and np.shape(examples)[1:] != (inputs,):
        raise InvalidInput(
            f"examples (--examples) must hold rows of {inputs} inputs, got shape "
            f"{np.shape(examples)}"
        )


def first_rows(result: RecoveryResult | None) -> FloatArray:
    """Return the first-layer weights that a result holds, ``(k, d)``; k may be zero."""
    if result is None:
        return np.zeros((0, 0))
    if result.network is not None and result.network.depth >= 2:
        return result.network.weights[0]
    return result.findings().first_layer


def seen_span(result: RecoveryResult | None) -> FloatArray:
    """Return an orthonormal basis ``(r, d)`` of what the model sees, as far as it is known."""
    if result is None:
        return _none()
    found, network = result.findings(), result.network
    if found.rank:
        return found.basis if result.success or result.certificate is not None else _none()
    if network is None or not result.copied or network.depth < 2:
        return _none()
    rows = network.weights[0]
    if network.skip is not None:
        rows = np.concatenate([rows, network.skip])
    _, values, basis = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(basis[values > 1e-9 * values.max(initial=0.0)])


def _none() -> FloatArray:
    return np.zeros((0, 0))


def name_layer(rows: FloatArray, shape: tuple[int, int] | None) -> str:
    """Say what the first layer's weights look like, or nothing.

    A convolution's units look at a patch each, and share its weights.
    """
    if len(rows) < 3 or rows.shape[1] < 6:
        return ""
    size = np.abs(rows)
    seen = size > 1e-6 * size.max(axis=1, keepdims=True)
    counts = seen.sum(axis=1)
    typical = int(np.median(counts))
    if typical > 0.5 * rows.shape[1]:
        return ""
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    kernels = [np.round(np.sort(np.abs(u[s])), 4).tobytes()
               for u, s in zip(units, seen, strict=True) if s.sum() == typical]  # fmt: skip
    shared = len(kernels) - len(set(kernels))
    if shared >= 0.5 * max(1, len(kernels)):
        patch = ""
        if shape is not None and np.prod(shape) == rows.shape[1]:
            sides = [_extent(s.reshape(shape)) for s in seen if s.sum() == typical]
            height, width = (int(v) for v in np.median(np.array(sides), axis=0))
            patch = f", patches of {height} by {width}"
        return (
            f"its first layer is a convolution: each unit looks at {typical} of "
            f"{rows.shape[1]} inputs{patch}, with weights that {len(set(kernels))} kernels share"
        )
    return (
        f"its first-layer units look at few inputs each (typically {typical} of "
        f"{rows.shape[1]}): a sparse or locally connected layer"
    )


def _extent(mask: FloatArray) -> tuple[int, int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1


def example_images(
    shape: tuple[int, int], count: int, low: float = 0.0, high: float = 1.0
) -> FloatArray:
    """Return handwritten digits, stretched to the shape and range, ``(count, d)``."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    pictures = load_digits().images[: 3 * count : 3] / 16.0
    height, width = shape
    sized = [np.clip(zoom(p, (height / 8, width / 8), order=1), 0.0, 1.0) for p in pictures]
    return np.asarray(low + (high - low) * np.array(sized).reshape(count, -1))


def show_blind(
    target: Oracle,
    basis: FloatArray,
    images: FloatArray,
    noise: float,
    scale: float,
    rng: np.random.Generator,
) -> Obfuscated | None:
    """Add noise outside the span, ask the target for both, and compare."""
    d = target.input_dim
    if not 0 < len(basis) < d:
        return None
    box = None
    if target.box is not None:
        low, high = float(target.box[0].min()), float(target.box[1].max())
        if not (target.box[0] == low).all() or not (target.box[1] == high).all():
            return None
        box = (low, high)
    try:
        made = obfuscate(images, basis, noise=noise, box=box, rng=rng)
        with target.stage("figure"):
            answers = target(np.concatenate([images, made.images]))
    except UnreluError:  # the budget may be spent: no figure then
        return None
    before, after = np.split(answers, 2)
    return Obfuscated(
        images,
        made.images,
        float(np.abs(after - before).max()) / (scale or 1.0),
        float(np.mean(made.correlation)),
        float(np.mean(made.noise_norm)),
    )
