r"""Activations of a hidden layer: value, slope, name and what leaves the function unchanged.

Two things may be free in a unit :math:`u\,\varphi(wx + b)`. A mirror,

.. math:: \varphi(2p - z) = \sigma\varphi(z) + \alpha z + \beta,

turns the unit over: for free where :math:`\alpha = 0` (tanh, sine, the absolute value), and
against an affine term otherwise (ReLU, GELU, SiLU, softplus: :math:`\varphi(-z)` is
:math:`\varphi(z) - z`).
And a positive scale moves between w and u where :math:`\varphi` is homogeneous (ReLU, leaky
ReLU, the absolute value). Some activations are others in disguise: :data:`Disguise` says how.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.interpolate
import scipy.special
from array_api_compat import array_namespace

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput

__all__ = ["KINDS", "RELU", "SMOOTH", "Activation", "Disguise", "Mirror", "activation", "spline"]

Array = Any  # of any namespace that array_api_compat knows, for ReLU; of numpy for others
Function = Callable[[Array, FloatArray], Array]
"""Of preactivations ``(n, k)`` and parameters ``(p, 1)`` or ``(p, k)``."""

_TANH_FORM = float(np.sqrt(2.0 / np.pi)), 0.044715  # Hendrycks & Gimpel 2016
_SIX = 6.0  # where ReLU6 ends, and the width of torch's hard sigmoid


@dataclasses.dataclass(frozen=True)
class Mirror:
    """``phi(2 center - z) = sign phi(z) + slope z + offset``."""

    sign: float
    slope: float = 0.0
    offset: float = 0.0
    center: float = 0.0


@dataclasses.dataclass(frozen=True)
class Disguise:
    """``phi(z) = scale psi(inner z + shift) + offset``, psi the activation named ``usual``."""

    usual: str
    inner: float
    scale: float
    shift: float = 0.0
    offset: float = 0.0


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is known about a named activation.

    ``parameters`` are the defaults; ``smooth`` says that it has a second derivative but at
    isolated points and none of its slopes jumps.
    """

    value: Function
    slope: Function
    parameters: tuple[float, ...] = ()
    smooth: bool = False
    homogeneous: bool = False
    mirror: Mirror | None = None
    disguise: Disguise | None = None


def _relu(z: Array, p: FloatArray) -> Array:
    if isinstance(z, np.ndarray):
        return np.maximum(z, z.dtype.type(0))
    xp = array_namespace(z)
    return xp.where(z > 0, z, xp.zeros_like(z))


def _step(z: Array, p: FloatArray) -> Array:
    if isinstance(z, np.ndarray):
        return (z > 0).astype(z.dtype)
    return array_namespace(z).astype(z > 0, z.dtype)


def _normal(z: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))


def _gelu_slope(z: FloatArray, p: FloatArray) -> FloatArray:
    return np.asarray(scipy.special.ndtr(z) + z * _normal(z))


def _tanh_slope(z: FloatArray, p: FloatArray) -> FloatArray:
    return np.asarray(1.0 - np.tanh(z) ** 2)


def _inner(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the argument of the tanh form of GELU and its slope; far out it stays finite."""
    scale, cubic = _TANH_FORM
    z = np.clip(z, -1e3, 1e3)
    return scale * (z + cubic * z**3), scale * (1.0 + 3.0 * cubic * z**2)


def _gelu_tanh(z: FloatArray, p: FloatArray) -> FloatArray:
    return np.asarray(0.5 * z * (1.0 + np.tanh(_inner(z)[0])))


def _gelu_tanh_slope(z: FloatArray, p: FloatArray) -> FloatArray:
    inner, slope = _inner(z)
    t = np.tanh(inner)
    return np.asarray(0.5 * (1.0 + t) + 0.5 * z * (1.0 - t**2) * slope)


def _silu_slope(z: FloatArray, p: FloatArray) -> FloatArray:
    s = scipy.special.expit(z)
    return np.asarray(s * (1.0 + z * (1.0 - s)))


def _logistic_slope(z: FloatArray, p: FloatArray) -> FloatArray:
    s = scipy.special.expit(z)
    return np.asarray(s * (1.0 - s))


def _between(z: FloatArray, low: float, high: float) -> FloatArray:
    return np.asarray(((z > low) & (z < high)).astype(np.float64))


def _curves(p: FloatArray) -> list[scipy.interpolate.CubicSpline]:
    """Return a unit's profile each: parameters are low end, high end, then values between."""
    return [scipy.interpolate.CubicSpline(np.linspace(c[0], c[1], len(c) - 2), c[2:]) for c in p.T]


def _spline(z: FloatArray, p: FloatArray) -> FloatArray:
    """Evaluate profiles; beyond their ends they go on straight."""
    out = np.empty_like(z)
    for j, curve in enumerate(_curves(np.broadcast_to(p, (len(p), z.shape[1])))):
        inside = np.clip(z[:, j], curve.x[0], curve.x[-1])
        out[:, j] = curve(inside) + curve(inside, 1) * (z[:, j] - inside)
    return out


def _spline_slope(z: FloatArray, p: FloatArray) -> FloatArray:
    out = np.empty_like(z)
    for j, curve in enumerate(_curves(np.broadcast_to(p, (len(p), z.shape[1])))):
        out[:, j] = curve(np.clip(z[:, j], curve.x[0], curve.x[-1]), 1)
    return out


_ODD = Mirror(-1.0)
_LIKE_RELU = Mirror(1.0, slope=-1.0)

KINDS: Mapping[str, Kind] = {
    "relu": Kind(_relu, _step, homogeneous=True, mirror=_LIKE_RELU),
    "tanh": Kind(lambda z, p: np.tanh(z), _tanh_slope, smooth=True, mirror=_ODD),
    "logistic": Kind(
        lambda z, p: scipy.special.expit(z), _logistic_slope, smooth=True,
        mirror=Mirror(-1.0, offset=1.0), disguise=Disguise("tanh", 0.5, 0.5, offset=0.5),
    ),
    "gelu": Kind(
        lambda z, p: z * scipy.special.ndtr(z), _gelu_slope, smooth=True, mirror=_LIKE_RELU
    ),
    "gelu_tanh": Kind(_gelu_tanh, _gelu_tanh_slope, smooth=True, mirror=_LIKE_RELU),
    "silu": Kind(
        lambda z, p: z * scipy.special.expit(z), _silu_slope, smooth=True, mirror=_LIKE_RELU
    ),
    "softplus": Kind(
        lambda z, p: np.logaddexp(0.0, p[0] * z) / p[0],
        lambda z, p: scipy.special.expit(p[0] * z), (1.0,), smooth=True, mirror=_LIKE_RELU,
    ),
    "elu": Kind(
        lambda z, p: np.where(z > 0, z, np.expm1(np.minimum(z, 0.0))),
        lambda z, p: np.exp(np.minimum(z, 0.0)), smooth=True,
    ),
    "sine": Kind(lambda z, p: np.sin(z), lambda z, p: np.cos(z), smooth=True, mirror=_ODD),
    "leaky_relu": Kind(
        lambda z, p: np.where(z > 0, z, p[0] * z),
        lambda z, p: np.where(z > 0, 1.0, p[0] + 0.0 * z), (0.01,), homogeneous=True,
    ),
    "abs": Kind(
        lambda z, p: np.abs(z), lambda z, p: np.sign(z), homogeneous=True, mirror=Mirror(1.0)
    ),
    "hard_tanh": Kind(
        lambda z, p: np.clip(z, -1.0, 1.0), lambda z, p: _between(z, -1.0, 1.0), mirror=_ODD
    ),
    "relu6": Kind(
        lambda z, p: np.clip(z, 0.0, _SIX), lambda z, p: _between(z, 0.0, _SIX),
        mirror=Mirror(-1.0, offset=_SIX, center=_SIX / 2),
        disguise=Disguise("hard_tanh", 2 / _SIX, _SIX / 2, shift=-1.0, offset=_SIX / 2),
    ),
    "hard_sigmoid": Kind(
        lambda z, p: np.clip(z / _SIX + 0.5, 0.0, 1.0),
        lambda z, p: _between(z, -_SIX / 2, _SIX / 2) / _SIX, mirror=Mirror(-1.0, offset=1.0),
        disguise=Disguise("hard_tanh", 2 / _SIX, 0.5, offset=0.5),
    ),
    "spline": Kind(_spline, _spline_slope),
}  # fmt: skip
"""All activations by name. Aliases of other libraries: :data:`ALIASES`."""

ALIASES = {
    "sigmoid": "logistic", "swish": "silu", "sin": "sine", "prelu": "leaky_relu",
    "hardtanh": "hard_tanh", "hardsigmoid": "hard_sigmoid", "leakyrelu": "leaky_relu",
}  # fmt: skip

SMOOTH = ("tanh", "gelu", "gelu_tanh", "silu", "softplus", "elu", "sine")
"""Smooth ones that are no other in disguise: what a profile is compared with."""


@dataclasses.dataclass(frozen=True, eq=False)
class Activation:
    """A named activation with its parameters.

    Attributes
    ----------
    name
        One of :data:`KINDS`.
    parameters
        ``(p,)``, or ``(k, p)`` where each of k units has its own (PReLU, a spline).
    """

    name: str
    parameters: FloatArray

    @property
    def kind(self) -> Kind:
        """What is known about this name."""
        return KINDS[self.name]

    @property
    def mirror(self) -> Mirror | None:
        """How a unit may be turned over, if it may."""
        if self.name == "leaky_relu":
            slopes = np.unique(self.parameters)
            return Mirror(1.0, slope=-1.0 - float(slopes[0])) if len(slopes) == 1 else None
        return self.kind.mirror

    @property
    def homogeneous(self) -> bool:
        """Whether ``phi(c z) = c phi(z)`` for ``c > 0``: rows may then be scaled freely."""
        return self.kind.homogeneous

    def _columns(self) -> FloatArray:
        p = self.parameters
        return np.asarray(p[:, None] if p.ndim == 1 else p.T)

    def value(self, z: Any) -> Any:
        """Return the values at preactivations ``(n, k)``, in their dtype and namespace."""
        return self.kind.value(z, self._columns())

    def slope(self, z: Any) -> Any:
        """Return the derivative at preactivations ``(n, k)``."""
        return self.kind.slope(z, self._columns())

    def __call__(self, z: FloatArray) -> FloatArray:
        """Return the values at preactivations ``(n, k)``."""
        return np.asarray(self.value(z))

    def taken(self, which: ArrayLike) -> Activation:
        """Return the activation of some of the units, by index or mask."""
        if self.parameters.ndim == 1:
            return self
        return Activation(self.name, self.parameters[np.asarray(which)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Activation):
            return NotImplemented
        return self.name == other.name and np.array_equal(self.parameters, other.parameters)

    def __hash__(self) -> int:
        return hash((self.name, self.parameters.tobytes()))

    def __str__(self) -> str:
        p = self.parameters
        if p.size == 0 or self.name == "spline":
            return self.name
        if p.ndim == 1:
            return f"{self.name}({', '.join(f'{v:.6g}' for v in p)})"
        return f"{self.name}({p.min():.6g} to {p.max():.6g}, by unit)"


def activation(name: str | Activation, *parameters: ArrayLike) -> Activation:
    """Return an activation by name; a parameter may be one number or one for each unit."""
    if isinstance(name, Activation):
        return name
    key = ALIASES.get(name.lower(), name.lower())
    if key not in KINDS:
        raise InvalidInput(f"unknown activation {name!r}; known are {', '.join(KINDS)}")
    if key == "spline":
        raise InvalidInput("a spline is made by unrelu.activations.spline")
    given = [np.atleast_1d(np.asarray(p, dtype=np.float64)) for p in parameters]
    defaults = KINDS[key].parameters
    if len(given) > len(defaults):
        raise InvalidInput(f"{key} takes {len(defaults)} parameters, got {len(given)}")
    given += [np.array([v]) for v in defaults[len(given) :]]
    if not given:
        return Activation(key, np.empty(0))
    table = np.stack(np.broadcast_arrays(*given), axis=1)
    return Activation(key, table[0] if len(table) == 1 else table)


def spline(low: FloatArray, high: FloatArray, values: FloatArray) -> Activation:
    """Return a cubic through equidistant ``values`` ``(k, n)`` between ``low`` and ``high``."""
    return Activation("spline", np.column_stack([low, high, values]))


RELU = activation("relu")
