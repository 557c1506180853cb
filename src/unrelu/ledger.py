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
import hashlib
import os
import re
import sqlite3
import struct
import threading
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unrelu._numbers import whole_number
from unrelu._types import FloatArray
from unrelu.errors import InvalidInput, LedgerError, LedgerFull, UnreluError

__all__ = ["FirstPoint", "Ledger", "LedgerBinding", "LedgerEntry", "redact"]

APPLICATION_ID = 0x756E7265  # "unre"
SCHEMA_VERSION = 1
DIGEST_BYTES = 20
DEFAULT_MAX_BYTES = 8 << 30
_PAGE_BYTES = 8192
_LOOKUP_CHUNK = 900  # below SQLite's smallest limit on bound variables (999)
_BUSY_SECONDS = 60.0
FIRST_POINTS = 8
_MAX_REPEATS = 64  # repetitions of a first point that are looked for
_SCHEMA = """
CREATE TABLE oracles (
    id INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE,
    input_dim INTEGER NOT NULL, output_dim INTEGER, created REAL NOT NULL
);
CREATE TABLE answers (
    oracle INTEGER NOT NULL, key BLOB NOT NULL, answer BLOB NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (oracle, key)
) WITHOUT ROWID;
CREATE TABLE points (
    oracle INTEGER NOT NULL, key BLOB NOT NULL, repeat INTEGER NOT NULL, point BLOB NOT NULL,
    PRIMARY KEY (oracle, key)
) WITHOUT ROWID;
CREATE TABLE spend (
    oracle INTEGER NOT NULL, stage TEXT NOT NULL, rows INTEGER NOT NULL, trips INTEGER NOT NULL,
    PRIMARY KEY (oracle, stage)
) WITHOUT ROWID;
"""
# Added to ledgers of the first release when they are opened; what reads those reads these.
_FIRST_POINTS = """
CREATE TABLE IF NOT EXISTS first_points (
    oracle INTEGER NOT NULL, position INTEGER NOT NULL, repeat INTEGER NOT NULL,
    point BLOB NOT NULL, PRIMARY KEY (oracle, position)
) WITHOUT ROWID;
"""


def redact(identity: str) -> str:
    """Remove credentials and query strings from any URL inside ``identity``."""
    without_user = re.sub(r"(\w+://)[^/@\s]*@", r"\1", identity)
    return re.sub(r"(\w+://[^\s?#|]*)[?#][^\s|]*", r"\1", without_user)


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
        self.max_bytes = whole_number(max_bytes, "max_bytes", least=16 * _PAGE_BYTES)
        self.read_only = read_only
        self._lock = threading.RLock()
        try:
            _check_file(self.path, must_exist=read_only)
            if not read_only and (not self.path.exists() or self.path.stat().st_size == 0):
                _create(self.path)
        except LedgerError:
            raise
        except OSError as error:  # a name too long, a folder that may not be searched
            raise LedgerError(f"cannot use {self.path}: {error.strerror}") from error
        self._db = self._open()
        self._keeps_first_points = self._has_table("first_points")

    def _open(self) -> sqlite3.Connection:
        with _translated(self.path):
            mode = "ro" if self.read_only else "rw"
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            db = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False
            )
            try:
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version != SCHEMA_VERSION:
                    raise LedgerError(
                        f"{self.path} was written by another version of unrelu (format {version}, "
                        f"this one reads {SCHEMA_VERSION}); use that version, or a new file"
                    )
                if not self.read_only:
                    db.execute("PRAGMA journal_mode=WAL")
                    db.execute("PRAGMA synchronous=FULL")
                    db.execute(f"PRAGMA max_page_count={self.max_bytes // _PAGE_BYTES}")
                    db.execute("BEGIN IMMEDIATE")  # a read-only file fails here, not mid-run
                    with contextlib.suppress(sqlite3.OperationalError):  # no room: do without
                        db.execute(_FIRST_POINTS)
                    if db.in_transaction:
                        db.execute("COMMIT")
                db.execute("SELECT count(*) FROM oracles").fetchone()
            except BaseException:
                db.close()
                raise
        return db

    def _has_table(self, name: str) -> bool:
        with self._lock, _translated(self.path):
            found = self._db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,))
            return found.fetchone() is not None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _translated(self.path):
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
        name = _checked_name(identity)
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
        with self._lock, _translated(self.path):
            rows = self._db.execute("SELECT identity FROM oracles ORDER BY id").fetchall()
            return [str(row[0]) for row in rows]

    def entries(self) -> list[LedgerEntry]:
        """Return what is held, one entry per oracle."""
        with self._lock, _translated(self.path):
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
        with self._lock, _translated(self.path):
            result = [row[0] for row in self._db.execute("PRAGMA integrity_check(10)")]
            problems = [] if result == ["ok"] else [f"structure: {line}" for line in result]
            bad = 0
            for key, answer, crc in self._db.execute("SELECT key, answer, crc FROM answers"):
                bad += not _is_sound(key, answer, crc)
            if bad:
                problems.append(f"{bad} answers do not match their checksum")
        return problems

    def export(self, identity: str | None = None) -> Iterator[tuple[str, FloatArray, FloatArray]]:
        """Yield ``(identity, x, y)`` of each oracle's stored points and answers."""
        for entry in self.entries():
            if identity is not None and entry.identity != redact(identity):
                continue
            with self._lock, _translated(self.path):
                rows = self._db.execute(
                    "SELECT p.key, p.repeat, p.point, a.answer, a.crc FROM points p "
                    "JOIN answers a ON a.oracle = p.oracle AND a.key = p.key "
                    "JOIN oracles o ON o.id = p.oracle WHERE o.identity = ?",
                    (entry.identity,),
                ).fetchall()
                x = decode([row[2] for row in rows], entry.input_dim, self.path)
                for point, (key, repeat, _, answer, crc) in zip(x, rows, strict=True):
                    keys = LedgerBinding.keys(point[None], repeat)
                    if keys != [key] or not _is_sound(key, answer, crc):
                        raise _damaged(self.path, "a point or an answer fails its checksum")
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
        with self._lock, _translated(self.path):
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
        with self.ledger._lock, _translated(self.ledger.path):
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
        with self.ledger._lock, _translated(self.ledger.path):
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
        with self.ledger._lock, _translated(self.ledger.path):
            for start in range(0, len(keys), _LOOKUP_CHUNK):
                chunk = keys[start : start + _LOOKUP_CHUNK]
                marks = ",".join("?" * len(chunk))
                for key, answer, crc in self.ledger._db.execute(
                    f"SELECT key, answer, crc FROM answers WHERE oracle = ? AND key IN ({marks})",
                    (self._number, *chunk),
                ):
                    if not _is_sound(key, answer, crc):
                        raise _damaged(self.ledger.path, "an answer fails its checksum")
                    found[key] = answer
        return found

    def first_points(self, output_dim: int) -> list[FirstPoint]:
        """Return the first points that were answered; none where the ledger is older."""
        if not self.ledger._keeps_first_points:
            return []
        with self.ledger._lock, _translated(self.ledger.path):
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
                    raise _damaged(self.ledger.path, "the answer to a first point is not there")
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


def decode(blobs: list[bytes], width: int, path: Path) -> FloatArray:
    """Turn stored answers (or points) back into ``(n, width)``."""
    if any(not isinstance(blob, bytes) or len(blob) != 8 * width for blob in blobs):
        raise LedgerError(
            f"{path} holds answers of another width than {width}; "
            "run `unrelu ledger verify`, or use a new ledger"
        )
    values = np.frombuffer(b"".join(blobs), dtype="<f8")
    return values.reshape(len(blobs), width).astype(np.float64)


def _is_sound(key: Any, answer: Any, crc: Any) -> bool:
    """Whether an answer is one, and the one that was written."""
    if not (isinstance(key, bytes) and isinstance(answer, bytes)):
        return False
    return len(answer) % 8 == 0 and zlib.crc32(answer, zlib.crc32(key)) == crc


def _damaged(path: Path, what: str) -> LedgerError:
    return LedgerError(
        f"the ledger {path} is damaged ({what}); run `unrelu ledger verify`, restore a copy, "
        "or start a new file"
    )


def _checked_name(identity: str) -> str:
    """Return the name of a section: no credentials, and nothing that cannot be written."""
    if not isinstance(identity, str) or not identity:
        raise InvalidInput(f"the name of a target is a text, got {identity!r}")
    try:
        identity.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the name {identity!r} cannot be written: {error}") from error
    return redact(identity)


def _check_file(path: Path, *, must_exist: bool) -> None:
    """Refuse what is not ours by its first bytes, without touching it."""
    if "\0" in str(path):
        raise LedgerError(f"{str(path)!r} is no name of a file")
    if path.is_dir():
        raise LedgerError(f"{path} is a folder; a ledger is a file")
    if path.is_symlink() and not path.exists():
        raise LedgerError(f"{path} is a link that leads nowhere; it was left as it is")
    if path.exists() and not path.is_file():
        raise LedgerError(
            f"{path} is a device, a pipe or a socket; a ledger is a regular file. It was left "
            "as it is"
        )
    if not path.exists():
        if must_exist:
            raise LedgerError(f"there is no ledger {path}")
        if not path.absolute().parent.is_dir():
            raise LedgerError(f"the folder of the ledger {path} does not exist")
        return
    try:
        with path.open("rb") as stream:
            header = stream.read(100)
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror}") from error
    if len(header) == 0:
        return
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise LedgerError(
            f"{path} is not an unrelu ledger, or its beginning is damaged; it was left as it is"
        )
    if struct.unpack(">I", header[68:72])[0] != APPLICATION_ID:
        raise LedgerError(
            f"{path} is a database of another program, not an unrelu ledger; it was left as it is"
        )


def _create(path: Path) -> None:
    """Build a complete empty ledger beside ``path`` and move it there in one step."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with _translated(path):
            db = sqlite3.connect(temporary, isolation_level=None)
            try:
                db.execute(f"PRAGMA page_size={_PAGE_BYTES}")
                db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                db.executescript(f"BEGIN; {_SCHEMA} {_FIRST_POINTS} COMMIT;")
                db.execute("PRAGMA journal_mode=WAL")
            finally:
                db.close()
        if path.exists() and path.stat().st_size == 0:
            os.replace(temporary, path)
        else:
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(temporary, path)
    except OSError as error:
        if isinstance(error, LedgerError):
            raise
        raise LedgerError(f"cannot create the ledger {path}: {error.strerror}") from error
    finally:
        for leftover in ("", "-wal", "-shm", "-journal"):
            temporary.with_name(temporary.name + leftover).unlink(missing_ok=True)


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, with what to do."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "full" in text:
            raise LedgerFull(
                f"the ledger {path} is full (its size limit or the disk); what it held before is "
                "safe. Run `unrelu ledger prune`, free space, or raise the limit"
            ) from error
        if "readonly" in text or "unable to open" in text:
            raise LedgerError(
                f"the ledger {path} cannot be written ({text}); check its permissions"
            ) from error
        if "locked" in text or "busy" in text:
            raise LedgerError(
                f"the ledger {path} was locked by another process for {_BUSY_SECONDS:.0f} s"
            ) from error
        if "closed" in text:
            raise LedgerError(f"the ledger {path} has been closed") from error
        raise _damaged(path, text) from error
    except UnreluError:
        raise
    except (TypeError, ValueError, OverflowError) as error:  # a value of another type than ours
        raise _damaged(path, f"a value that cannot be: {error}") from error
