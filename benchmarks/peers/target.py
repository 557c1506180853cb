"""The target of one run, in a process of its own.

It holds the weights, answers over a local socket and counts every row it
answers, repeats and restarts included. The solver cannot reset the count: it is
read over a pipe that only the runner holds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import multiprocessing
import os
import pickle
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

RECORD_BYTES = 64 * 2**20  # inputs kept for a student that trains on the same ones


@dataclasses.dataclass
class Record:
    """What the target saw of a solver."""

    rows: int = 0
    round_trips: int = 0
    late: int = 0
    connections: int = 0
    finished: bool = False
    started_at: float | None = None
    finished_at: float | None = None
    claim: str | None = None
    checks: int = 0
    message: str = ""
    arrays: dict[str, np.ndarray] | None = None

    @property
    def seconds(self) -> float | None:
        """Processor time that the solver took from its first word to its last question."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and its threads so far; 0 where it is gone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _other_end(link: Connection) -> int:
    """Return the process at the other end of a local socket."""
    with socket.socket(fileno=os.dup(link.fileno())) as end:
        credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def answerer(weights: list[np.ndarray], biases: list[np.ndarray], precision: str) -> Any:
    """Return the target's function: float64, float32, or rounded to six decimals."""
    kind = np.float32 if precision == "float32" else np.float64
    ws, bs = [w.astype(kind) for w in weights], [b.astype(kind) for b in biases]

    def answer(x: np.ndarray) -> np.ndarray:
        value = x.astype(kind)
        for w, b in zip(ws[:-1], bs[:-1], strict=True):
            value = np.maximum(value @ w.T + b, kind(0))
        out = (value @ ws[-1].T + bs[-1]).astype(np.float64)
        return np.round(out, 6) if precision == "rounded" else out

    return answer


class _Server:
    def __init__(self, function: Any, task: dict[str, Any], heldout: np.ndarray, keep: bool):
        self.function, self.task, self.heldout = function, task, heldout
        self.record = Record()
        self.points: list[np.ndarray] | None = [] if keep else None
        self._kept = 0
        self._lock = threading.Lock()

    def talk(self, link: Connection) -> None:
        with contextlib.suppress(EOFError, OSError):
            pid = _other_end(link)
            while True:
                message = link.recv_bytes()
                link.send_bytes(self.reply(message[:1], message[1:], pid))

    def reply(self, kind: bytes, body: bytes, pid: int) -> bytes:
        with self._lock:
            record = self.record
            if kind == b"H":
                record.connections += 1
                if record.started_at is None:
                    record.started_at = processor_seconds(pid)
                return b"Y" + json.dumps(self.task).encode()
            if kind == b"A":
                return self._answer(body)
            if kind == b"F":
                if not record.finished:
                    record.finished, record.finished_at = True, processor_seconds(pid)
                return b"Y" + self.heldout.tobytes()
            if kind == b"C" and record.finished and record.claim is None:
                said = json.loads(body)
                record.claim, record.message = str(said["claim"]), str(said["message"])
                record.checks = int(said["checks"])
                return b"Y"
            if kind == b"R" and record.finished and record.arrays is None:
                with np.load(io.BytesIO(body), allow_pickle=False) as file:
                    record.arrays = {name: file[name] for name in file.files}
                return b"Y"
            return b"N" + b"out of order"

    def _answer(self, body: bytes) -> bytes:
        record = self.record
        x = np.frombuffer(body).reshape(-1, self.task["input_dim"])
        record.rows += len(x)
        record.round_trips += 1
        if record.finished:
            record.late += len(x)
            return b"N" + b"the questions are over"
        y = self.function(x)
        if self.points is not None:
            self._kept += len(body)
            self.points.append(x)
            if self._kept > RECORD_BYTES:
                self.points = None
        return b"Y" + np.ascontiguousarray(y, dtype=np.float64).tobytes()


def _serve() -> None:
    """Read the target from standard input, answer until told to stop, write the record."""
    given = pickle.load(sys.stdin.buffer)  # from the runner, never from a solver
    function = answerer(given["weights"], given["biases"], given["precision"])
    keep = given["keep"]
    server = _Server(function, given["task"], given["heldout"], keep is not None)

    def accept(listener: Listener) -> None:
        while True:
            try:
                link = listener.accept()
            except multiprocessing.AuthenticationError:
                continue
            except OSError:
                return
            threading.Thread(target=server.talk, args=(link,), daemon=True).start()

    with Listener(given["address"], family="AF_UNIX", authkey=given["key"]) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        sys.stdout.buffer.write(b"ready\n")
        sys.stdout.buffer.flush()
        sys.stdin.buffer.read(1)  # until the runner says stop, or is gone
        if keep is not None and server.points:
            Path(keep).parent.mkdir(parents=True, exist_ok=True)
            np.save(keep, np.concatenate(server.points))
        pickle.dump(vars(server.record), sys.stdout.buffer)
        sys.stdout.buffer.flush()


class TargetProcess:
    """A context in which the target answers; ``stop`` returns its :class:`Record`."""

    def __init__(
        self,
        weights: list[np.ndarray],
        biases: list[np.ndarray],
        *,
        precision: str,
        task: dict[str, Any],
        heldout: np.ndarray,
        keep: Path | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="peer-")
        self._given = {
            "weights": weights, "biases": biases, "precision": precision, "task": task,
            "heldout": heldout, "keep": None if keep is None else str(keep),
            "address": str(Path(self._folder.name) / "target"), "key": secrets.token_bytes(16),
        }  # fmt: skip
        self.environment = {
            "UNRELU_PEER_ADDRESS": self._given["address"],
            "UNRELU_PEER_KEY": self._given["key"].hex(),
        }

    def __enter__(self) -> TargetProcess:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        pickle.dump(self._given, self._in)
        self._in.flush()
        if self._out.readline() != b"ready\n":
            raise RuntimeError("the target did not start")
        return self

    def stop(self) -> Record:
        """End the target and read what it counted."""
        self._in.write(b"s")
        self._in.flush()
        return Record(**pickle.load(self._out))

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._in.close()
        self._out.close()
        self._folder.cleanup()


if __name__ == "__main__":
    _serve()
