"""Sizes of the audit."""

from __future__ import annotations

import dataclasses

__all__ = ["AuditConfig"]


@dataclasses.dataclass(frozen=True)
class AuditConfig:
    """Sizes of the audit."""

    decimals: tuple[int, ...] = (4, 2)
    """Roundings tried as a defence."""
    noise: tuple[float, ...] = (1e-6, 1e-3, 1e-1)
    """Gaussian noise tried, over the answers' standard deviation."""
    fractions: tuple[float, ...] = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    """Parts of the attack's queries after which the leak is measured."""
    patience: float = 2.0
    """A defended attack may spend this many times the undefended one's queries."""
    points: int = 2000
    """Inputs over which a clone's error and an honest user's loss are measured."""
    epochs: int = 60
    copies: tuple[int, ...] = (250, 1000, 4000)
    """Answers after which an ordinary copy of the target is trained, for the curve; every defence
    is tried against one of the most."""
    copy_width: int = 128
    """Hidden units of that copy."""
    line_points: int = 161
    """Answers shown along one line; asked from the target."""
    attempts: int = 3
    """Attacks, each with a seed of its own, that must fail before a target is called hard to copy,
    or a change of its answers is said to stop them: one alone may be unlucky in its first look."""
    useful: float = 0.1
    """Relative error below which a clone is called useful."""
    useless: float = 0.5
    """Relative error from which a defence is said to stop the attack; between the two nothing is
    claimed, as another seed may end on the other side of a single line."""
    examples: int = 4
    """Images shown before and after obfuscation; the target is asked for both."""
    obfuscation: float = 2.0
    """Norm of the noise there, over the image's."""
    seconds: float | None = None
    """Of computing for one defence, in a process of its own; None: until it is done, in this."""
