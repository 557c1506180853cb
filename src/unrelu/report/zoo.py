"""Several models audited side by side on a dask cluster, and one page that ranks them.

Each model is a job of its own: it has its own ledger, limits and report, and runs
wherever a worker is free. A worker that dies loses nothing but the requests in
flight: its job starts again elsewhere with the same seed, and its ledger answers
what was answered. What a finished job found lies in one file, so that a run that
was ended goes on where it stood. Workers on other machines need the same folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from threadpoolctl import threadpool_limits

from unrelu._files import replace_file
from unrelu._version import __version__
from unrelu.errors import InvalidInput, MissingExtra, UnreluError
from unrelu.ledger import Ledger, redact
from unrelu.oracles import Oracle, connect
from unrelu.report.audit import audit
from unrelu.report.page import new_environment, render_page
from unrelu.report.risk import RULE

__all__ = ["Job", "Zoo", "audit_jobs", "rank_of", "render_zoo", "run_job"]

SCHEMA = "unrelu-zoo/1"
LEVELS = ("high", "medium", "not shown", "low")
"""Risks, the one to look at first; what is not known goes before what is low."""


class Aimed(Protocol):
    """An attack that looks at its target before it is run."""

    def on(self, oracle: Oracle) -> tuple[Any, Oracle]:
        """Return the attack (with ``domain`` and ``look``), and the target as it is to be seen."""
        ...


@dataclasses.dataclass(frozen=True)
class Job:
    """One model to audit, described so that any worker can.

    Attributes
    ----------
    name
        As the list calls it.
    target
        Anything :func:`unrelu.connect` takes that can be sent to a worker.
    said
        The target as the user wrote it.
    connecting, auditing
        Keyword arguments of :func:`unrelu.connect` and :func:`unrelu.report.audit`.
    folder
        Where report, facts and ledger go.
    ledger
        The file that keeps its answers; one beside its report otherwise.
    """

    name: str
    target: Any
    said: str
    folder: Path
    ledger: Path | None = None
    connecting: dict[str, Any] = dataclasses.field(default_factory=dict)
    auditing: dict[str, Any] = dataclasses.field(default_factory=dict)
    attack: Aimed | None = None
    store_points: bool = False

    def file(self, suffix: str) -> Path:
        """Return the name of one of its files; letters that a file system may not like go."""
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in self.name)
        return self.folder / f"{safe}{suffix}"

    def digest(self) -> str:
        """Return what tells whether facts that were kept answer this very question."""
        model = Path(self.said)
        with contextlib.suppress(OSError, ValueError):
            if model.is_file():
                stat = model.stat()
                return self._hash(stat.st_size, stat.st_mtime_ns)
        return self._hash()

    def _hash(self, *more: Any) -> str:
        question = (__version__, self.said, self.connecting, self.auditing, self.attack, *more)
        return hashlib.blake2b(repr(question).encode(), digest_size=10).hexdigest()

    def kept(self) -> dict[str, Any] | None:
        """Return the facts of an earlier run, where they answer the same question."""
        with contextlib.suppress(OSError, ValueError):
            facts = json.loads(self.file(".json").read_text(encoding="utf-8"))
            if facts.get("job") == self.digest():
                return dict(facts)
        return None


@dataclasses.dataclass(frozen=True)
class Zoo:
    """What became of each model: facts as :meth:`Audit.to_json` tells them, or why none."""

    jobs: tuple[Job, ...]
    facts: dict[str, dict[str, Any]]
    """By name; those that were audited."""
    errors: dict[str, str]
    """By name; why the others were not."""

    @property
    def ranked(self) -> list[Job]:
        """The models that were audited, the one most at risk first."""
        audited = [job for job in self.jobs if job.name in self.facts]
        return sorted(audited, key=lambda job: rank_of(self.facts[job.name]))

    def sentence(self) -> str:
        """Say the whole in a sentence."""
        cloned = [f["attack_queries"] for f in self.facts.values() if f["recovered"]]
        text = f"{len(cloned)} of {len(self.jobs)} models can be copied from their answers"
        if cloned:
            text += f", the first after {min(cloned):,} queries"
        if self.errors:
            text += f"; {len(self.errors)} could not be audited"
        return f"{text}."

    def to_json(self) -> str:
        """Return everything for machines, ranked."""
        models = [{"name": job.name, "facts": self.facts[job.name]} for job in self.ranked]
        failed = [{"name": name, "error": error} for name, error in self.errors.items()]
        return json.dumps({"schema": SCHEMA, "models": models, "failed": failed}, indent=2)


def rank_of(facts: dict[str, Any]) -> tuple[int, bool, int, float]:
    """Return what models are ordered by: risk, then what a copy costs, then how good it is."""
    best = max((point["agreement"] for point in facts["copies"]), default=0.0)
    cost = facts["attack_queries"] if facts["recovered"] else 0
    return LEVELS.index(facts["risk"]["level"]), not facts["recovered"], cost, -best


def run_job(job: Job) -> dict[str, Any]:
    """Audit one model and write what was found; runs on a worker.

    Returns
    -------
    dict
        The facts, or ``{"error": sentence}``: one model that cannot be asked ends no other's
        audit.
    """
    kept = job.kept()
    if kept is not None:
        return kept
    try:
        path = job.ledger or job.file(".ledger")
        with threadpool_limits(1), Ledger(path, store_points=job.store_points) as book:
            oracle = connect(job.target, ledger=book, **job.connecting)
            how: dict[str, Any] = {}
            if job.attack is not None:
                attack, oracle = job.attack.on(oracle)
                how = {"attack": attack, "look": attack.look, "domain": attack.domain}
            found = audit(oracle, name=job.said, **how, **job.auditing)
        replace_file(job.file(".html"), render_page(found).encode())
        facts: dict[str, Any] = json.loads(found.to_json()) | {"job": job.digest()}
        replace_file(job.file(".json"), json.dumps(facts, indent=2).encode())
    except (UnreluError, OSError) as error:
        return {"error": redact(str(error))}
    except Exception as error:  # a target's own code may do anything
        return {"error": f"{type(error).__name__}: {error}"}
    return facts


def audit_jobs(
    jobs: Sequence[Job], scheduler: str | None = None
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Audit all models, as many at a time as there are workers; yields each as it is done.

    Parameters
    ----------
    scheduler
        Address of a dask scheduler; a cluster of this machine's cores otherwise.
    """
    files = [job.file("") for job in jobs]
    for job, file in zip(jobs, files, strict=True):
        if files.count(file) > 1:
            raise InvalidInput(f"two models would write {file}: rename {job.name!r}")
    open_jobs = [job for job in jobs if job.kept() is None]
    for job in jobs:
        if job not in open_jobs:
            yield job, run_job(job)
    if not open_jobs:
        return
    with _client(scheduler, len(open_jobs)) as client:
        from distributed import as_completed

        running = {client.submit(run_job, job, pure=False): job for job in open_jobs}
        for future in as_completed(running):
            lost = future.exception()
            yield (
                running[future],
                future.result() if lost is None else {"error": f"its workers were lost: {lost}"},
            )


@contextlib.contextmanager
def _client(scheduler: str | None, jobs: int) -> Iterator[Any]:
    """Connect to a cluster, or start one of processes here until the block ends."""
    try:
        import distributed
    except ImportError:
        raise MissingExtra("distributed", "dask", "auditing several models") from None
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"no dask scheduler answers at {scheduler}: {error}") from error
        with client:
            yield client
        return
    with (
        distributed.LocalCluster(
            n_workers=min(jobs, os.cpu_count() or 1), threads_per_worker=1, processes=True,
            dashboard_address=None, silence_logs=logging.ERROR,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        yield client


def render_zoo(zoo: Zoo, page: Path) -> str:
    """Return one page that ranks the models, with links to their reports from ``page``."""
    rows = [
        {
            "name": job.name,
            "link": quote(os.path.relpath(job.file(".html"), page.absolute().parent)),
            "facts": zoo.facts[job.name],
            "best": max(
                (point["agreement"] for point in zoo.facts[job.name]["copies"]), default=None
            ),
        }
        for job in zoo.ranked
    ]
    template = new_environment().get_template("zoo.html")
    return str(template.render(zoo=zoo, rows=rows, version=__version__, rule=RULE))
