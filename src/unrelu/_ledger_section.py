"""The section of a ledger that belongs to one oracle: what it spent, asked and was answered."""

from __future__ import annotations

import dataclasses
import hashlib
import sqlite3
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from unrelu._ledger_file import damaged, decode, is_sound, translated
from unrelu._types import FloatArray

if TYPE_CHECKING:
    from unrelu.ledger import Ledger

DIGEST_BYTES = 20
FIRST_POINTS = 8
_LOOKUP_CHUNK = 900  # below SQLite's smallest limit on bound variables (999)
_MAX_REPEATS = 64  # repetitions of a first point that are looked for


@dataclasses.dataclass(frozen=True)
class FirstPoint:
    """One of the first points that an oracle answered.

    Attributes
    ----------
    point
        Shape ``(d,)``.
    repeat
        The repeat index that it was first asked with.
    answers
        The answer to that, then to all other repeat indices held, ``(r, m)``.
    """

    point: FloatArray
    repeat: int
    answers: FloatArray


class LedgerBinding:
    """The section of a ledger that belongs to one oracle."""

    def __init__(self, ledger: Ledger, number: int, identity: str, *, reopened: bool) -> None:
        self.ledger = ledger
        self.identity = identity
        self.reopened = reopened
        """Whether it held answers when it was bound: others' or of an earlier run."""
        self._number = number
        self._may_lack_first_points = ledger._keeps_first_points

    @property
    def output_dim(self) -> int | None:
        """The output width recorded earlier, or None."""
        with self.ledger._lock, translated(self.ledger.path):
            row = self.ledger._db.execute(
                "SELECT output_dim FROM oracles WHERE id = ?", (self._number,)
            ).fetchone()
            width = None if row is None or row[0] is None else int(row[0])
            if width is not None and width < 1:
                raise ValueError(f"{width} outputs")
        return width

    def charge(self, stage: str, rows: int, budget: int | None) -> bool:
        """Count rows about to leave; False, and no count, if over budget."""
        with self.ledger._transaction() as db:
            if budget is not None:
                spent = db.execute(
                    "SELECT coalesce(sum(rows), 0) FROM spend WHERE oracle = ?", (self._number,)
                ).fetchone()[0]
                if spent + rows > budget:
                    return False
            db.execute(
                "INSERT INTO spend VALUES (?, ?, ?, 1) ON CONFLICT (oracle, stage) "
                "DO UPDATE SET rows = rows + excluded.rows, trips = trips + 1",
                (self._number, stage, rows),
            )
        return True

    def refund(self, stage: str, rows: int) -> None:
        """Take back a charge for rows that provably never left."""
        with self.ledger._transaction() as db:
            db.execute(
                "UPDATE spend SET rows = rows - ?, trips = trips - 1 "
                "WHERE oracle = ? AND stage = ?",
                (rows, self._number, stage),
            )

    def rebook(self, stage: str, other: str, rows: int) -> None:
        """Count ``rows`` that were charged to ``stage`` under ``other`` instead."""
        with self.ledger._transaction() as db:
            held = db.execute(
                "SELECT rows FROM spend WHERE oracle = ? AND stage = ?", (self._number, stage)
            ).fetchone()
            rows = min(rows, 0 if held is None else held[0])
            db.execute(
                "UPDATE spend SET rows = rows - ? WHERE oracle = ? AND stage = ?",
                (rows, self._number, stage),
            )
            db.execute(
                "INSERT INTO spend VALUES (?, ?, ?, 0) ON CONFLICT (oracle, stage) "
                "DO UPDATE SET rows = rows + excluded.rows",
                (self._number, other, rows),
            )

    def spent(self) -> tuple[dict[str, int], int]:
        """Return rows by stage, and round trips, over all runs."""
        with self.ledger._lock, translated(self.ledger.path):
            return self.ledger._spent(self._number)

    @staticmethod
    def keys(points: FloatArray, repeat: int) -> list[bytes]:
        """Return the digest of each row's bytes and the repeat index."""
        suffix = struct.pack("<q", repeat)
        data = np.ascontiguousarray(points, dtype="<f8").data.cast("B")
        width = 8 * points.shape[1]
        found = []
        for start in range(0, len(data), width):
            digest = hashlib.blake2b(data[start : start + width], digest_size=DIGEST_BYTES)
            digest.update(suffix)
            found.append(digest.digest())
        return found

    def lookup(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """Return the stored answers among ``keys``, each checked against its checksum."""
        found: dict[bytes, bytes] = {}
        with self.ledger._lock, translated(self.ledger.path):
            for start in range(0, len(keys), _LOOKUP_CHUNK):
                chunk = keys[start : start + _LOOKUP_CHUNK]
                marks = ",".join("?" * len(chunk))
                for key, answer, crc in self.ledger._db.execute(
                    f"SELECT key, answer, crc FROM answers WHERE oracle = ? AND key IN ({marks})",
                    (self._number, *chunk),
                ):
                    if not is_sound(key, answer, crc):
                        raise damaged(self.ledger.path, "an answer fails its checksum")
                    found[key] = answer
        return found

    def first_points(self, output_dim: int) -> list[FirstPoint]:
        """Return the first points that were answered; none where the ledger is older."""
        if not self.ledger._keeps_first_points:
            return []
        with self.ledger._lock, translated(self.ledger.path):
            rows = self.ledger._db.execute(
                "SELECT f.point, f.repeat, o.input_dim FROM first_points f "
                "JOIN oracles o ON o.id = f.oracle WHERE f.oracle = ? ORDER BY f.position",
                (self._number,),
            ).fetchall()
            found = []
            for blob, repeat, width in rows:
                repeat = int(repeat)
                point = decode([blob], width, self.ledger.path)
                order = [repeat, *(r for r in range(_MAX_REPEATS) if r != repeat)]
                keys = [key for index in order for key in self.keys(point, index)]
                held = self.lookup(keys)
                if keys[0] not in held:
                    raise damaged(self.ledger.path, "the answer to a first point is not there")
                blobs = [held[key] for key in keys if key in held]
                answers = decode(blobs, output_dim, self.ledger.path)
                found.append(FirstPoint(point[0], repeat, answers))
        return found

    def _keep_first(self, db: sqlite3.Connection, points: FloatArray, repeat: int) -> None:
        """Keep points, each once, while the section holds fewer than its share."""
        query = "SELECT point FROM first_points WHERE oracle = ?"
        known = [bytes(row[0]) for row in db.execute(query, (self._number,))]
        for point in points:
            if len(known) >= FIRST_POINTS:
                self._may_lack_first_points = False
                break
            raw = np.ascontiguousarray(point, dtype="<f8").tobytes()
            if raw not in known:
                row = (self._number, len(known), repeat, raw)
                db.execute("INSERT INTO first_points VALUES (?, ?, ?, ?)", row)
                known.append(raw)

    def record(
        self, keys: list[bytes], points: FloatArray, answers: FloatArray, repeat: int
    ) -> FloatArray:
        """Store a batch durably; return what the ledger holds for it.

        Where another process was faster its answer stands, so that both go on
        with the same bits.
        """
        width = 8 * answers.shape[1]
        blob = np.ascontiguousarray(answers, dtype="<f8").tobytes()
        rows = []
        for i, key in enumerate(keys):
            answer = blob[i * width : (i + 1) * width]
            rows.append((self._number, key, answer, zlib.crc32(answer, zlib.crc32(key))))
        with self.ledger._transaction() as db:
            stored = db.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", rows)
            fresh = stored.rowcount
            if self._may_lack_first_points:
                self._keep_first(db, points, repeat)
            if self.ledger.store_points:
                raw = np.ascontiguousarray(points, dtype="<f8").tobytes()
                size = 8 * points.shape[1]
                db.executemany(
                    "INSERT OR IGNORE INTO points VALUES (?, ?, ?, ?)",
                    (
                        (self._number, key, repeat, raw[i * size : (i + 1) * size])
                        for i, key in enumerate(keys)
                    ),
                )
            db.execute(
                "UPDATE oracles SET output_dim = ? WHERE id = ? AND output_dim IS NULL",
                (answers.shape[1], self._number),
            )
        if fresh == len(keys):
            return answers
        held = self.lookup(keys)
        return decode([held[key] for key in keys], answers.shape[1], self.ledger.path)
