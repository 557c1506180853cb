"""A ledger's file: its format, how it is made, opened and refused, and how its rows are read."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput, LedgerError, LedgerFull, UnreluError

APPLICATION_ID = int.from_bytes(b"unre")
SCHEMA_VERSION = 1
PAGE_BYTES = 8192
_BUSY_SECONDS = 60.0
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


def checked_name(identity: str) -> str:
    """Return the name of a section: no credentials, and nothing that cannot be written."""
    if not isinstance(identity, str) or not identity:
        raise InvalidInput(f"the name of a target is a text, got {identity!r}")
    try:
        identity.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the name {identity!r} cannot be written: {error}") from error
    return redact(identity)


# ------------------------------------------------------------------- the file itself


def check_file(path: Path, *, must_exist: bool) -> None:
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


def create(path: Path) -> None:
    """Build a complete empty ledger beside ``path`` and move it there in one step."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with translated(path):
            db = sqlite3.connect(temporary, isolation_level=None)
            try:
                db.execute(f"PRAGMA page_size={PAGE_BYTES}")
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


def connect(path: Path, *, read_only: bool, max_bytes: int) -> sqlite3.Connection:
    """Open a ledger's file and see that it is one that can be read, and written if it may be."""
    with translated(path):
        mode = "ro" if read_only else "rw"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        db = sqlite3.connect(
            uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False
        )
        try:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA_VERSION:
                raise LedgerError(
                    f"{path} was written by another version of unrelu (format {version}, "
                    f"this one reads {SCHEMA_VERSION}); use that version, or a new file"
                )
            if not read_only:
                db.execute("PRAGMA journal_mode=WAL")
                db.execute("PRAGMA synchronous=FULL")
                db.execute(f"PRAGMA max_page_count={max_bytes // PAGE_BYTES}")
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


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
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
        raise damaged(path, text) from error
    except UnreluError:
        raise
    except (TypeError, ValueError, OverflowError) as error:  # a value of another type than ours
        raise damaged(path, f"a value that cannot be: {error}") from error


# ------------------------------------------------------------------------- its rows


def decode(blobs: list[bytes], width: int, path: Path) -> FloatArray:
    """Turn stored answers (or points) back into ``(n, width)``."""
    if any(not isinstance(blob, bytes) or len(blob) != 8 * width for blob in blobs):
        raise LedgerError(
            f"{path} holds answers of another width than {width}; "
            "run `unrelu ledger verify`, or use a new ledger"
        )
    values = np.frombuffer(b"".join(blobs), dtype="<f8")
    return values.reshape(len(blobs), width).astype(np.float64)


def is_sound(key: Any, answer: Any, crc: Any) -> bool:
    """Whether an answer is one, and the one that was written."""
    if not (isinstance(key, bytes) and isinstance(answer, bytes)):
        return False
    return len(answer) % 8 == 0 and zlib.crc32(answer, zlib.crc32(key)) == crc


def damaged(path: Path, what: str) -> LedgerError:
    return LedgerError(
        f"the ledger {path} is damaged ({what}); run `unrelu ledger verify`, restore a copy, "
        "or start a new file"
    )
