"""Every error that unrelu raises on purpose.

One root, :class:`UnreluError`; each child also inherits the builtin that a
caller would expect, so ``except ValueError`` keeps working. An error that
interrupts a run carries what had been answered before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BudgetExhausted",
    "InvalidAnswer",
    "InvalidInput",
    "LedgerError",
    "LedgerFull",
    "LedgerMismatch",
    "MissingExtra",
    "OracleError",
    "UnreluError",
]


class UnreluError(Exception):
    """Root of all errors raised on purpose by this package.

    >>> import unrelu
    >>> issubclass(unrelu.BudgetExhausted, unrelu.UnreluError)
    True
    """


class InvalidInput(UnreluError, ValueError):
    """An argument has the wrong shape, type or range.

    >>> import unrelu
    >>> unrelu.connect(unrelu.planted.affine(3, rng=0))([[1.0, 2.0]])
    Traceback (most recent call last):
    unrelu.errors.InvalidInput: ...
    """


class OracleError(UnreluError, RuntimeError):
    """The target could not be asked, or failed while answering.

    Attributes
    ----------
    answers
        The rows of the same call that had been answered before the failure,
        shape ``(k, m)``, or None if there were none.

    >>> OracleError("the target hung up").answers is None
    True
    """

    def __init__(self, message: str, *, answers: NDArray[Any] | None = None) -> None:
        super().__init__(message)
        self.answers = answers


class InvalidAnswer(OracleError, ValueError):
    """The target answered nonsense: a wrong shape, a NaN, an infinity.

    >>> import numpy as np, unrelu
    >>> unrelu.connect(lambda x: x[:, :1] * np.nan, input_dim=2, output_dim=1)([[1.0, 2.0]])
    Traceback (most recent call last):
    unrelu.errors.InvalidAnswer: ...
    """


class BudgetExhausted(OracleError):
    """The next batch would exceed the query budget; it was not sent.

    >>> import unrelu
    >>> unrelu.connect(unrelu.planted.affine(2, rng=0), budget=1)([[1.0, 2.0], [3.0, 4.0]])
    Traceback (most recent call last):
    unrelu.errors.BudgetExhausted: ...
    """


class LedgerError(UnreluError, OSError):
    """The ledger file is corrupt, foreign, read-only, or out of space.

    >>> import tempfile, unrelu
    >>> unrelu.Ledger(tempfile.mkdtemp())
    Traceback (most recent call last):
    unrelu.errors.LedgerError: ...
    """


class LedgerFull(LedgerError):
    """The ledger reached the size limit that its owner set.

    >>> issubclass(LedgerFull, OSError)
    True
    """


class LedgerMismatch(LedgerError):
    """The target no longer gives the answers that the ledger holds: another model is there.

    >>> issubclass(LedgerMismatch, LedgerError)
    True
    """


class MissingExtra(UnreluError, ImportError):
    """An optional dependency is not installed; the message names the command.

    >>> print(MissingExtra("onnx", "onnx", "an ONNX file"))
    an ONNX file needs the package 'onnx'. Install it with: pip install 'unrelu[onnx]'
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}'. "
            f"Install it with: pip install 'unrelu[{extra}]'"
        )
        self.package = package
        self.extra = extra
