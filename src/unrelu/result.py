"""One kind of result for every algorithm.

A failure is a :class:`Status` with a sentence that says what was seen and what
to try; it keeps all that was recovered so far. Bad input raises instead.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy
import scipy.special
from numpy.typing import NDArray

from unrelu._files import read_tensors, write_tensors
from unrelu._version import __version__
from unrelu.errors import InvalidInput
from unrelu.findings import Findings
from unrelu.networks import Network
from unrelu.views import as_html, as_text, plotted

__all__ = [
    "Certificate",
    "Provenance",
    "QueryStats",
    "RecoveryResult",
    "StageReport",
    "Status",
]

_FORMAT = "unrelu.result/1"


class Status(enum.Enum):
    """How a recovery ended. Each algorithm's docs say what RECOVERED promises.

    APPROXIMATED: a network is given and its error was measured, but it is a copy
    that comes close, not the target itself; RECOVERED is kept for what is exact
    within the noise of the answers, and for an error that the caller asked for.

    >>> Status("partial").name
    'PARTIAL'
    """

    RECOVERED = "recovered"
    APPROXIMATED = "approximated"
    PARTIAL = "partial"
    BUDGET_EXHAUSTED = "budget exhausted"
    ILL_CONDITIONED = "ill conditioned"
    ASSUMPTION_VIOLATED = "assumption violated"
    NUMERICAL_FAILURE = "numerical failure"


@dataclasses.dataclass(frozen=True)
class QueryStats:
    """Rows sent to the target, as counted at the oracle.

    Attributes
    ----------
    total
        Rows sent, over all runs of the ledger where there is one; rows that
        the ledger answered are not in it.
    by_stage
        The same, split by the stage that asked.
    round_trips
        Calls made to the target to send them.
    samples
        Labelled samples used, for algorithms that ask nothing.
    """

    total: int = 0
    by_stage: Mapping[str, int] = dataclasses.field(default_factory=dict)
    round_trips: int = 0
    samples: int = 0

    @property
    def without_certificate(self) -> int:
        """Rows sent for the recovery itself, held-out checks excluded."""
        return self.total - self.by_stage.get("certificate", 0)


@dataclasses.dataclass(frozen=True)
class StageReport:
    """What one stage of an algorithm did.

    ``details`` holds plain numbers and strings that a person may want to see.
    """

    name: str
    queries: int = 0
    seconds: float = 0.0
    message: str = ""
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _root_mean_square(values: NDArray[np.float64]) -> float:
    """Return it without squaring numbers that would overflow."""
    largest = float(values.max())
    if not 0.0 < largest < np.inf:
        return largest
    return largest * float(np.sqrt(np.mean((values / largest) ** 2)))


DOUBT = 1e-4  # probability that chance alone brings a verdict about: people act on it
CONFIDENCE = 1.0 - DOUBT  # of a certificate's bound
HELD_OUT = round(1.0 / DOUBT)  # inputs held out where they are cheap: what is as rare is met


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What oracle access alone says about the quality of a recovery.

    Attributes
    ----------
    samples
        Held-out points asked; no later query and no parameter depends on them.
    max_deviation, rms_deviation
        Over those points, in units of the answers.
    scale
        Standard deviation of the answers over those points.
    tolerance
        Deviation above which a point counts as exceeding.
    exceeding
        How many points did.
    confidence
        Confidence of ``fraction_bound``.
    fraction_bound
        Clopper-Pearson upper bound on the probability that a fresh input's
        deviation exceeds ``tolerance``.
    distribution
        The inputs' distribution, in words.
    details
        Algorithm-specific facts: conditioning, residuals, assumed bounds.

    >>> Certificate.from_deviations(np.array([0.0, 1e-9]), scale=1.0, tolerance=1e-8).exceeding
    0
    """

    samples: int
    max_deviation: float
    rms_deviation: float
    scale: float
    tolerance: float
    exceeding: int
    confidence: float
    fraction_bound: float
    distribution: str = "standard Gaussian"
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_deviations(
        cls,
        deviations: NDArray[np.float64],
        *,
        scale: float,
        tolerance: float,
        confidence: float = CONFIDENCE,
        distribution: str = "standard Gaussian",
        details: Mapping[str, Any] | None = None,
        exceeding: NDArray[np.bool_] | None = None,
    ) -> Self:
        """Summarise absolute deviations, shape ``(n,)`` or ``(n, m)``.

        ``exceeding`` tells which points exceed, where points or outputs have
        tolerances of their own of which ``tolerance`` is the largest.
        """
        values = np.abs(np.asarray(deviations, dtype=np.float64))
        if values.size == 0:
            raise InvalidInput("a certificate needs at least one held-out point")
        per_point = values.reshape(len(values), -1).max(axis=1)
        beyond = per_point > tolerance if exceeding is None else exceeding
        failed = int(np.count_nonzero(beyond))
        n = len(per_point)
        # Clopper & Pearson 1934: the one-sided upper limit is a beta quantile.
        bound = (
            1.0
            if failed >= n
            else float(scipy.special.betaincinv(failed + 1, n - failed, confidence))
        )
        return cls(
            samples=n,
            max_deviation=float(per_point.max()),
            rms_deviation=_root_mean_square(values),
            scale=float(scale),
            tolerance=float(tolerance),
            exceeding=failed,
            confidence=confidence,
            fraction_bound=bound,
            distribution=distribution,
            details=dict(details or {}),
        )

    @property
    def relative_deviation(self) -> float:
        """Largest deviation over the spread of the answers."""
        return self.max_deviation / self.scale if self.scale > 0 else self.max_deviation

    def __str__(self) -> str:
        return (
            f"max deviation {self.max_deviation:.2g} "
            f"({self.relative_deviation:.2g} of the answers' spread) on "
            f"{self.samples} held-out {self.distribution} inputs; with "
            f"{100 * self.confidence:g}% confidence at most {self.fraction_bound:.2%} of inputs "
            f"deviate by more than {self.tolerance:.2g}"
        )


@dataclasses.dataclass(frozen=True)
class Provenance:
    """What produced a result, so that it can be produced again."""

    algorithm: str
    seed: int | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    target: str = ""
    version: str = __version__
    numpy: str = np.__version__
    scipy: str = scipy.__version__
    python: str = platform.python_version()
    machine: str = f"{platform.system()} {platform.machine()}"

    @property
    def entry(self) -> str:
        """Name of the function whose method gave the result; what ``extract`` chose, say."""
        return str(self.options.get("chosen", self.algorithm)).partition(" ")[0]


def _plain(value: Any) -> Any:
    """Turn numpy scalars, arrays and enums into what JSON knows."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


@dataclasses.dataclass(frozen=True, repr=False)
class RecoveryResult:
    """What an algorithm recovered, how it went, and what it cost.

    Subclasses add arrays of their own (a span's basis, a layer's directions):
    every field of theirs that holds an array, a number or a string is saved
    and reloaded with the rest.

    >>> RecoveryResult(Status.PARTIAL, "one layer", QueryStats(), Provenance("mine")).success
    False
    """

    status: Status
    message: str
    queries: QueryStats
    provenance: Provenance
    network: Network | None = None
    certificate: Certificate | None = None
    stages: tuple[StageReport, ...] = ()

    _kinds: ClassVar[dict[str, type[RecoveryResult]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        RecoveryResult._kinds[cls.__name__] = cls

    @property
    def success(self) -> bool:
        """Whether the status is RECOVERED."""
        return self.status is Status.RECOVERED

    @property
    def copied(self) -> bool:
        """Whether there is a network that is the target, or comes close with a measured error."""
        return self.network is not None and self.status in {
            Status.RECOVERED,
            Status.APPROXIMATED,
        }

    def findings(self) -> Findings:
        """Say what was found out about the target, in terms that all methods share.

        What shows results (report, command line) asks this and no method's own type. The
        default reads the fields that :mod:`unrelu.findings` names.
        """
        return Findings.from_fields(self._own_fields())

    def _own_fields(self) -> dict[str, Any]:
        base = {f.name for f in dataclasses.fields(RecoveryResult)}
        return {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in base
        }

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def plot(self) -> Any:
        """Return a matplotlib figure: first-layer units, queries by stage, the certificate."""
        return plotted(self)

    # ------------------------------------------------------------------ files

    def _facts(self) -> dict[str, Any]:
        own = {k: v for k, v in self._own_fields().items() if not isinstance(v, np.ndarray)}
        facts = {
            "kind": type(self).__name__,
            "status": self.status.name,
            "success": self.success,
            "message": self.message,
            "queries": dataclasses.asdict(self.queries),
            "provenance": dataclasses.asdict(self.provenance),
            "certificate": None
            if self.certificate is None
            else dataclasses.asdict(self.certificate),
            "stages": [dataclasses.asdict(stage) for stage in self.stages],
            "network": None
            if self.network is None
            else {
                "architecture": self.network.architecture,
                "parameters": self.network.parameters,
                "skip": self.network.skip is not None,
                "fingerprint": self.network.fingerprint(),
            },
            "fields": own,
        }
        plain = _plain(facts)
        assert isinstance(plain, dict)
        return plain

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the facts as JSON; arrays stay in :meth:`save`'s file."""
        return json.dumps(self._facts(), indent=indent, ensure_ascii=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write facts and arrays to one safetensors file; returns the path."""
        arrays: dict[str, NDArray[Any]] = {
            f"field.{k}": v for k, v in self._own_fields().items() if isinstance(v, np.ndarray)
        }
        if self.network is not None:
            arrays |= {f"network.{k}": v for k, v in self.network._arrays().items()}
        facts = self.to_json(indent=None)
        return write_tensors(path, arrays, {"format": _FORMAT, "result": facts})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RecoveryResult:
        """Read what :meth:`save` wrote, as the class that wrote it."""
        arrays, metadata = read_tensors(path)
        if metadata.get("format") != _FORMAT:
            raise InvalidInput(f"{path} does not hold an unrelu result")
        try:
            facts = json.loads(metadata["result"])
            kind = facts["kind"]
            target = RecoveryResult if kind == "RecoveryResult" else RecoveryResult._kinds[kind]
            network_arrays = {
                k.removeprefix("network."): v
                for k, v in arrays.items()
                if k.startswith("network.")
            }
            own = {k: tuple(v) if isinstance(v, list) else v for k, v in facts["fields"].items()}
            own |= {
                k.removeprefix("field."): v for k, v in arrays.items() if k.startswith("field.")
            }
            certificate = facts["certificate"]
            return target(
                status=Status[facts["status"]],
                message=facts["message"],
                queries=QueryStats(**facts["queries"]),
                provenance=Provenance(**facts["provenance"]),
                network=Network._from_arrays(network_arrays) if network_arrays else None,
                certificate=None if certificate is None else _certificate(certificate),
                stages=tuple(StageReport(**stage) for stage in facts["stages"]),
                **own,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{path} holds a damaged or newer result: {error}") from error


def _certificate(facts: dict[str, Any]) -> Certificate:
    numbers: dict[str, Any] = {
        k: float(v) if isinstance(v, str) and k != "distribution" else v for k, v in facts.items()
    }
    return Certificate(**numbers)
