"""What the weights of a fully connected network tell of its shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Shaped"]


class Shaped:
    """A network of ``weights``, one matrix ``(width_l, width_{l-1})`` per layer."""

    weights: Sequence[Any]

    @property
    def input_dim(self) -> int:
        """Number of inputs, d."""
        return int(self.weights[0].shape[1])

    @property
    def output_dim(self) -> int:
        """Number of outputs, m."""
        return int(self.weights[-1].shape[0])

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(int(w.shape[0]) for w in self.weights[:-1])

    @property
    def depth(self) -> int:
        """Number of layers, the output layer included (one hidden layer: 2)."""
        return len(self.weights)

    @property
    def architecture(self) -> str:
        """Widths joined by dashes, such as ``784-128-1``."""
        return "-".join(map(str, (self.input_dim, *self.hidden_widths, self.output_dim)))
