"""What a driver uses: the task, a way to ask, and a way to hand in the answer.

Needs nothing but the standard library and numpy, and runs in any peer's
environment. A driver is a script::

    from peer_client import Task

    task = Task()                       # input_dim, output_dim, hidden, seed, rows, ...
    answers = task.ask(points)          # (n, d) -> (n, m); every row counts as a query
    task.finish(function, claim="exact", weights=[...], biases=[...])

``finish`` ends the questions: only then do the held-out inputs arrive, and a
row asked afterwards makes the run a failure.
"""

from __future__ import annotations

import io
import json
import os
import threading
import time
from multiprocessing.connection import Client

import numpy as np

CHUNK = 4096  # rows a message


def _end_with(runner: int) -> None:
    """End this process when the runner that started it is gone."""
    while os.getppid() == runner:
        time.sleep(1.0)
    os._exit(1)


class Task:
    """One target to recover.

    Attributes
    ----------
    input_dim, output_dim
        d and m.
    hidden
        Widths of the hidden layers, or None where they are not to be known.
    seed
        For the solver's own randomness; says nothing about the target.
    setting
        ``default``, ``tuned`` or another word that the driver knows.
    rows
        How many queries a solver that trains on random inputs may take.
    seconds
        Of processor time, until the run is ended from outside.
    points
        File with the inputs that another solver asked, or None.
    """

    def __init__(self) -> None:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        address = os.environ["UNRELU_PEER_ADDRESS"]
        key = bytes.fromhex(os.environ["UNRELU_PEER_KEY"])
        self._link = Client(address, family="AF_UNIX", authkey=key)
        facts = json.loads(self._call(b"H"))
        self.input_dim: int = facts["input_dim"]
        self.output_dim: int = facts["output_dim"]
        self.hidden: list[int] | None = facts["hidden"]
        self.seed: int = facts["seed"]
        self.setting: str = facts["setting"]
        self.rows: int = facts["rows"]
        self.seconds: float = facts["seconds"]
        self.points: str | None = facts["points"]

    def _call(self, message: bytes) -> bytes:
        self._link.send_bytes(message)
        reply = self._link.recv_bytes()
        if reply[:1] != b"Y":
            raise RuntimeError(reply[1:].decode())
        return reply[1:]

    def ask(self, x: object) -> np.ndarray:
        """Return the target's answers ``(n, m)`` to points ``(n, d)``."""
        points = np.ascontiguousarray(x, dtype=np.float64).reshape(-1, self.input_dim)
        parts = [
            np.frombuffer(self._call(b"A" + points[i : i + CHUNK].tobytes()))
            for i in range(0, len(points), CHUNK)
        ]
        return np.concatenate(parts or [np.empty(0)]).reshape(-1, self.output_dim).copy()

    def finish(
        self,
        function: object,
        *,
        claim: str,
        message: str = "",
        checks: int = 0,
        weights: object = None,
        biases: object = None,
        skip: object = None,
    ) -> None:
        """End the questions and hand in the recovered function.

        Parameters
        ----------
        function
            Callable on ``(n, d)``, or None where nothing was recovered.
        claim
            ``exact`` (the solver says that it recovered the target), ``none``
            (an approximation without a claim) or ``failed`` (it says so itself).
        checks
            Rows that only checked the result, by the solver's own account.
        weights, biases, skip
            Of the recovered network where there is one; rows are neurons.
        """
        arrays: dict[str, np.ndarray] = {}
        heldout = np.frombuffer(self._call(b"F")).reshape(-1, self.input_dim)
        if function is not None:
            arrays["answers"] = np.asarray(function(heldout.copy()), dtype=np.float64)  # type: ignore[operator]
        for i, (w, b) in enumerate(zip(weights or [], biases or [], strict=True)):  # type: ignore[call-overload]
            arrays[f"weights.{i}"], arrays[f"biases.{i}"] = np.asarray(w), np.asarray(b)
        if skip is not None:
            arrays["skip"] = np.asarray(skip)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        said = {"claim": claim, "message": message[:500], "checks": checks}
        self._call(b"C" + json.dumps(said).encode())
        self._call(b"R" + buffer.getvalue())
        self._link.close()
