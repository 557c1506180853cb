"""What a few queries say about an oracle, in numbers and in words."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

__all__ = ["Diagnosis", "DiagnosisConfig"]


@dataclasses.dataclass(frozen=True)
class DiagnosisConfig:
    """Sizes and thresholds of the diagnosis, in the units given."""

    points: int = 16
    """Gaussian points looked at; medians over them are steady to about 30 %."""
    steps: tuple[float, ...] = (1e1, 1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    """Steps of the second differences, in input units (times ``scale``): large ones
    cross kinks, small ones vanish in input rounding; the quietest that still moves
    the answer gives the noise. Those below ``small``'s end are asked where longer ones show
    more than the rounding of float64."""
    far: float = 100.0
    """Factor by which points are moved out to see whether answers stay bounded."""
    small: tuple[float, float] = (1e-5, 1e-3)
    """An input at which all steps from the one to the other move the answer lies on no flat
    part of the target."""
    still: float = 0.8
    """Steps up to the larger leave this part of a tree's answers as they are."""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What a few queries say about an oracle.

    Attributes
    ----------
    kind
        ``"values"``, ``"probabilities"``, ``"labels"`` or ``"constant"``.
    precision
        ``"float64"``, ``"float32"``, ``"bfloat16"`` or ``"N decimals"``: the
        coarsest grid that holds every answer seen.
    noise
        Standard deviation of an answer's error, in answer units.
    relative_noise
        The same over the typical size of the answers.
    deterministic
        The same point twice gave the same bits.
    batch_consistent
        A point alone and inside a batch gave the same bits.
    scale
        Standard deviation of the answers over Gaussian inputs.
    bend_step
        The smallest step, in input units, at which half of the points bend;
        None if there is none.
    piecewise_linear
        False when it bends at every step in proportion to its square, as
        smooth activations do; None when noise hides it.
    locally_constant
        Small steps change no answer anywhere, though answers differ from place
        to place: steps, as of trees.
    growth
        Exponent with which the answers' spread grows far out: about 1 for ReLU
        networks, 0 for what saturates.
    hyperplanes
        Rough number of hyperplanes at which it bends, from how often steps of
        each length meet one; None where that does not tell.
    queries
        Rows asked for the diagnosis.
    """

    kind: str
    precision: str
    noise: float
    relative_noise: float
    deterministic: bool
    batch_consistent: bool
    scale: float
    bend_step: float | None
    piecewise_linear: bool | None
    input_dim: int
    output_dim: int
    queries: int
    locally_constant: bool = False
    growth: float = 1.0
    hyperplanes: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values."""
        return dataclasses.asdict(self)

    @property
    def outline(self) -> str:
        """Inputs, outputs and precision in a few words."""
        counts = [
            f"{count} {word}{'' if count == 1 else 's'}"
            for count, word in ((self.input_dim, "input"), (self.output_dim, "output"))
        ]
        told = self.precision
        if told == "1 decimals":
            told = "1 decimal"
        return f"{', '.join(counts)}, answers in {told}"

    def sentences(self) -> list[str]:
        """Say the facts to a person."""
        lines = [f"inputs: {self.input_dim}, outputs: {self.output_dim} ({self.kind})"]
        if self.kind != "labels":
            lines.append(
                f"precision {self.precision}, noise floor {self.noise:.2g} "
                f"({self.relative_noise:.2g} of the answers' size)"
            )
        if not self.deterministic:
            lines.append("the same point gives different answers: averaging will be needed")
        elif not self.batch_consistent:
            lines.append("a point answered alone and in a batch differs in the last bits")
        else:
            lines.append("deterministic, alone and in batches")
        if self.kind == "labels":
            lines.append(
                "only labels come back: a network with one hidden layer can be had from them"
            )
        elif self.kind == "constant":
            lines.append("the answers never changed: nothing to recover but a constant")
        elif self.locally_constant:
            lines.append("it is constant but for jumps: steps, as of trees, not a ReLU network")
        elif self.piecewise_linear is False:
            lines.append("it bends smoothly everywhere: not a ReLU network")
        elif self.bend_step is None:
            lines.append("no bend was seen: affine as far as this look went")
        else:
            lines.append(f"piecewise linear; steps of {self.bend_step:g} usually meet a kink")
            if self.hyperplanes is not None:
                lines.append(f"roughly {_round_number(self.hyperplanes):,} hyperplanes")
        return lines


def _round_number(value: float) -> int:
    """Return one significant digit."""
    if value < 1:
        return round(value)
    size = 10 ** int(np.floor(np.log10(value)))
    return int(round(value / size) * size)
