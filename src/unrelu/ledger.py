"""Every answered query, durable before an algorithm sees it.

One SQLite file in WAL mode with ``synchronous=FULL``. An answer is filed under
the oracle's identity and a 160-bit digest of the exact float64 bytes of the
point and its repeat index. A batch is charged in one transaction before it is
sent and recorded in another before anyone sees it, so a killed process loses
at most the batches in flight, and never undercounts.

An oracle's section also keeps its first points as they are: asked again when the
section is opened anew, they tell whether the same target is still there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from unrelu._ledger_file import (
    PAGE_BYTES,
    check_file,
    checked_name,
    connect,
    create,
    damaged,
    decode,
    is_sound,
    redact,
    translated,
)
from unrelu._ledger_section import FIRST_POINTS, FirstPoint, LedgerBinding
from unrelu._numbers import whole_number
from unrelu._types import FloatArray
from unrelu.errors import InvalidInput, LedgerError

__all__ = [
    "FIRST_POINTS",
    "FirstPoint",
    "Ledger",
    "LedgerBinding",
    "LedgerEntry",
    "decode",
    "redact",
]

DEFAULT_MAX_BYTES = 8 << 30


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """What the ledger holds for one oracle."""

    identity: str
    input_dim: int
    output_dim: int | None
    answers: int
    points: int
    queries: int
    by_stage: dict[str, int]
    round_trips: int
    created: float


class Ledger:
    """A durable record of answered queries.

    Parameters
    ----------
    path
        The file; created when missing.
    store_points
        Also keep the points themselves (8 d bytes a row). Not needed to resume
        a run with the same seed: its points come again, and their digests are
        the keys. Ask for it to export a data set.
    max_bytes
        The file never grows beyond this; the batch that would is refused with
        :class:`LedgerFull`, and everything before it is kept.
    read_only
        Look, don't write.

    Examples
    --------
    >>> import pathlib, tempfile, unrelu
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "answers.db"
    >>> oracle = unrelu.connect(unrelu.planted.affine(3, rng=0), ledger=file)
    >>> oracle([[1.0, 2.0, 3.0]]).shape
    (1, 1)
    >>> [entry.answers for entry in unrelu.Ledger(file, read_only=True).entries()]
    [1]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        store_points: bool = False,
        max_bytes: int = DEFAULT_MAX_BYTES,
        read_only: bool = False,
    ) -> None:
        try:
            self.path = Path(path)
        except TypeError as error:
            raise InvalidInput(f"a ledger's path is a text or a path: {error}") from error
        self.store_points = store_points
        self.max_bytes = whole_number(max_bytes, "max_bytes", least=16 * PAGE_BYTES)
        self.read_only = read_only
        self._lock = threading.RLock()
        try:
            check_file(self.path, must_exist=read_only)
            if not read_only and (not self.path.exists() or self.path.stat().st_size == 0):
                create(self.path)
        except LedgerError:
            raise
        except OSError as error:  # a name too long, a folder that may not be searched
            raise LedgerError(f"cannot use {self.path}: {error.strerror}") from error
        self._db = connect(self.path, read_only=read_only, max_bytes=self.max_bytes)
        # A ledger that nobody closes is closed when it goes; Python 3.13 warns otherwise.
        weakref.finalize(self, self._db.close).atexit = False
        self._keeps_first_points = self._has_table("first_points")

    def _has_table(self, name: str) -> bool:
        with self._lock, translated(self.path):
            found = self._db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,))
            return found.fetchone() is not None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, translated(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def bind(self, identity: str, input_dim: int) -> LedgerBinding:
        """Open the section of one oracle; credentials are cut from its name."""
        name = checked_name(identity)
        with self._transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO oracles (identity, input_dim, created) VALUES (?, ?, ?)",
                (name, input_dim, time.time()),
            )
            number, known = db.execute(
                "SELECT id, input_dim FROM oracles WHERE identity = ?", (name,)
            ).fetchone()
            held = db.execute("SELECT 1 FROM answers WHERE oracle = ? LIMIT 1", (number,))
            reopened = held.fetchone() is not None
        if known != input_dim:
            raise LedgerError(
                f"{self.path} knows the oracle {name!r} with {known} inputs, not {input_dim}; "
                "give the new target another name, or use a new ledger"
            )
        return LedgerBinding(self, number, name, reopened=reopened)

    # ------------------------------------------------------------------ look

    def identities(self) -> list[str]:
        """Return the names of all oracles held."""
        with self._lock, translated(self.path):
            rows = self._db.execute("SELECT identity FROM oracles ORDER BY id").fetchall()
            return [str(row[0]) for row in rows]

    def entries(self) -> list[LedgerEntry]:
        """Return what is held, one entry per oracle."""
        with self._lock, translated(self.path):
            found = []
            for number, identity, d, m, created in self._db.execute(
                "SELECT id, identity, input_dim, output_dim, created FROM oracles ORDER BY id"
            ).fetchall():
                count = "SELECT count(*) FROM {} WHERE oracle = ?"
                answers = self._db.execute(count.format("answers"), (number,)).fetchone()[0]
                points = self._db.execute(count.format("points"), (number,)).fetchone()[0]
                by_stage, trips = self._spent(number)
                found.append(
                    LedgerEntry(
                        str(identity), int(d), None if m is None else int(m), answers, points,
                        sum(by_stage.values()), by_stage, trips, float(created),
                    )
                )  # fmt: skip
        return found

    def _spent(self, number: int) -> tuple[dict[str, int], int]:
        rows = self._db.execute(
            "SELECT stage, rows, trips FROM spend WHERE oracle = ? ORDER BY stage", (number,)
        ).fetchall()
        return (
            {str(stage): int(count) for stage, count, _ in rows},
            sum(int(trips) for _, _, trips in rows),
        )

    def size(self) -> int:
        """Bytes on disk, the write-ahead log included."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def verify(self) -> list[str]:
        """Check structure and checksums; return a list of problems, empty if none."""
        with self._lock, translated(self.path):
            result = [row[0] for row in self._db.execute("PRAGMA integrity_check(10)")]
            problems = [] if result == ["ok"] else [f"structure: {line}" for line in result]
            bad = 0
            for key, answer, crc in self._db.execute("SELECT key, answer, crc FROM answers"):
                bad += not is_sound(key, answer, crc)
            if bad:
                problems.append(f"{bad} answers do not match their checksum")
        return problems

    def export(self, identity: str | None = None) -> Iterator[tuple[str, FloatArray, FloatArray]]:
        """Yield ``(identity, x, y)`` of each oracle's stored points and answers."""
        for entry in self.entries():
            if identity is not None and entry.identity != redact(identity):
                continue
            with self._lock, translated(self.path):
                rows = self._db.execute(
                    "SELECT p.key, p.repeat, p.point, a.answer, a.crc FROM points p "
                    "JOIN answers a ON a.oracle = p.oracle AND a.key = p.key "
                    "JOIN oracles o ON o.id = p.oracle WHERE o.identity = ?",
                    (entry.identity,),
                ).fetchall()
                x = decode([row[2] for row in rows], entry.input_dim, self.path)
                for point, (key, repeat, _, answer, crc) in zip(x, rows, strict=True):
                    keys = LedgerBinding.keys(point[None], repeat)
                    if keys != [key] or not is_sound(key, answer, crc):
                        raise damaged(self.path, "a point or an answer fails its checksum")
                y = decode([row[3] for row in rows], entry.output_dim or 1, self.path)
            if rows:
                yield entry.identity, x, y

    def prune(self, identity: str | None = None, *, points_only: bool = False) -> int:
        """Delete an oracle's answers (None: all), or only the stored points.

        The counts of what was spent stay, unless the whole oracle goes.
        Returns the bytes that were freed.
        """
        before = self.size()
        with self._transaction() as db:
            chosen = [
                number
                for number, name in db.execute("SELECT id, identity FROM oracles").fetchall()
                if identity is None or name == redact(identity)
            ]
            if identity is not None and not chosen:
                raise InvalidInput(f"{self.path} holds nothing of the oracle {identity!r}")
            tables = ["points"] if points_only else ["points", "answers", "spend"]
            if self._keeps_first_points and not points_only:
                tables.append("first_points")
            for number in chosen:
                for table in tables:
                    db.execute(f"DELETE FROM {table} WHERE oracle = ?", (number,))
                if not points_only:
                    db.execute("DELETE FROM oracles WHERE id = ?", (number,))
        with self._lock, translated(self.path):
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return max(0, before - self.size())

    def close(self) -> None:
        """Close the file; a closed ledger answers nothing."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"
