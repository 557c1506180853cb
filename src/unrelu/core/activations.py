"""Activations, where methods look for them; networks, below the core, hold them too."""

from __future__ import annotations

from unrelu.activations import (
    KINDS,
    RELU,
    SMOOTH,
    Activation,
    Disguise,
    Mirror,
    activation,
    spline,
)

__all__ = ["KINDS", "RELU", "SMOOTH", "Activation", "Disguise", "Mirror", "activation", "spline"]
