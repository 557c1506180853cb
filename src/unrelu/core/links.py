r"""How answers come from a network's outputs: as they are, or as probabilities.

A link g maps outputs z, ``(n, m)``, to predicted answers. Every one here has a derivative of
the form

.. math:: \partial g / \partial z = \mathrm{diag}(\gamma)\,(I - 1 \pi^\top)

with a gain :math:`\gamma` per answer and a coupling :math:`\pi` per row (none where answers
depend on their own output alone), so that a fit needs no cases.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

from array_api_compat import array_namespace

__all__ = ["Link", "Linked", "apply_link"]

Array = Any
Link = Literal["values", "softmax", "log_softmax", "logistic"]
"""``values``: z; ``softmax``: probabilities; ``log_softmax``: their logarithms, nearly linear in
z and so the better start where every probability has digits; ``logistic``: one probability a
column."""


@dataclasses.dataclass(frozen=True)
class Linked:
    """Predicted answers and their derivative; see the module.

    Attributes
    ----------
    prediction, gain
        Shape ``(n, m)``.
    coupling
        Shape ``(n, m)``, or None for zero.
    """

    prediction: Array
    gain: Array
    coupling: Array | None


def apply_link(link: Link, z: Array) -> Linked:
    """Map outputs ``(n, m)`` to predicted answers."""
    xp = array_namespace(z)
    if link == "values":
        return Linked(z, xp.ones_like(z), None)
    if link == "logistic":
        small = xp.exp(-xp.abs(z))  # never overflows
        p = xp.where(z >= 0, 1.0 / (1.0 + small), small / (1.0 + small))
        return Linked(p, small / (1.0 + small) ** 2, None)
    if link not in get_args(Link):
        raise ValueError(f"link must be one of {', '.join(get_args(Link))}, not {link!r}")
    shifted = z - xp.max(z, axis=1, keepdims=True)
    total = xp.sum(xp.exp(shifted), axis=1, keepdims=True)
    logs = shifted - xp.log(total)
    p = xp.exp(logs)
    if link == "softmax":
        return Linked(p, p, p)
    return Linked(logs, xp.ones_like(z), p)
