"""The first of two hidden layers: lines of planes, hyperplanes that go on, rows."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from unrelu._types import FloatArray
from unrelu.extraction.two_hidden_answers import Reader, TwoHiddenConfig
from unrelu.extraction.two_hidden_lines import Segments, Trace, find_traces, line_kinks
from unrelu.extraction.two_hidden_rows import (
    SHOWN,
    Rows,
    measure_normal,
    missing_change,
    sharpen_rows,
    turn_rows,
)

__all__ = ["FirstLayer"]

_NEARLY_STILL = 0.02
_STILL = 1e-3
"""Change on units' off sides over that on their on sides up to which no row is missing: before
and after rows are sharpened, whose errors cause it too."""
_SAME = 1e-2
"""Distance below which two measured hyperplanes are one: many times their error."""


class FirstLayer:
    """The rows found so far."""

    def __init__(self, reader: Reader, config: TwoHiddenConfig) -> None:
        self.reader, self.config, self.rng = reader, config, reader.rng
        self.rows = Rows(np.empty((0, reader.dimension)), np.empty(0))
        self.error = 0.0  # of values, by errors of rows

    def find(self) -> bool:
        """Look at planes until no row is missing; False if planes end before.

        Along ``W^+ e_j`` on the off side of unit j nothing changes, if all rows are known. A few
        units tell that most are; all of them are asked then, and their signs come with it.
        """
        config, quiet = self.config, 0
        for _ in range(config.planes):
            with self.reader.run.stage("lines") as details:
                plane, base, segments, step = self.look_at_plane(inside=quiet % 2 == 0)
                traces = find_traces(segments)
            with self.reader.run.stage("gradients"):
                new = sum(self.take_trace(t, plane, base, segments, step) for t in traces)
            details |= {"traces": len(traces), "new rows": new}
            quiet = 0 if new else quiet + 1
            left = self.left() if self.rows.count else 1.0
            if _STILL <= left < _NEARLY_STILL:
                self.sharpen()
                left = self.left()
            if left < _STILL and self.turn() < _STILL:
                return True
        if self.rows.count:
            self.turn()
        return False

    def turn(self) -> float:
        """Turn rows to where their units are on; returns how much changes on off sides."""
        with self.reader.run.stage("signs") as details:
            self.rows, self.error, left = turn_rows(self.reader.read, self.rows, self.rng)
            details["left"] = left
        return left

    def left(self) -> float:
        """Return how much changes on off sides of a few units: nothing if all rows are known."""
        with self.reader.run.stage("signs") as details:
            details["left"] = missing_change(self.reader.read, self.rows, self.rng)
        return float(details["left"])

    def look_at_plane(self, *, inside: bool) -> tuple[FloatArray, FloatArray, Segments, float]:
        """Scan lines of a random plane; ``inside`` one on which known rows do not change.

        There all kinks are of rows that are missing, or of the second layer. But one that
        depends little on such inputs lies far away there.
        """
        config, d, rng = self.config, self.reader.dimension, self.rng
        directions = rng.standard_normal((d, 2))
        free = scipy.linalg.null_space(self.rows.weights) if self.rows.count else np.eye(d)
        angle = np.pi * (np.arange(config.lines) + rng.random(config.lines)) / config.lines
        if inside and free.shape[1] > 1:
            directions = free @ rng.standard_normal((free.shape[1], 2))
        elif inside and free.shape[1] == 1:
            directions[:, :1] = free  # one row is missing at most: all lines run that way
            angle = np.zeros(config.lines)
        plane = np.linalg.qr(directions)[0].T
        base = self.reader.draw(1)[0]
        base = base - plane.T @ (plane @ base)
        radius = config.radius * np.sqrt(d)
        direction = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        places = rng.permutation(config.lines) + rng.random(config.lines)
        off = 0.6 * radius * (2.0 * places / config.lines - 1.0)  # all of the disc is crossed
        half = np.sqrt(radius**2 - off**2)
        across = np.stack([-direction[:, 1], direction[:, 0]], axis=1)
        starts = across * off[:, None] - direction * half[:, None]
        steps = 2.0 * half / (config.points - 1)
        t = steps[:, None] * np.arange(config.points)
        flat = starts[:, None] + t[:, :, None] * direction[:, None]
        _, y, deviation = self.reader.read(base + flat.reshape(-1, 2) @ plane)
        y = y.reshape(config.lines, config.points, -1)
        deviation = deviation.reshape(config.lines, -1)
        kinks = []
        for line in range(config.lines):
            found = line_kinks(y[line], deviation[line], float(steps[line]))
            x = base + (starts[line] + np.outer(found[:, 0], direction[line])) @ plane
            known = np.abs(self.rows.heights(x)).min(axis=1, initial=np.inf) < 0.1 * steps[line]
            kinks.append(found[~known])
        segments = Segments(starts, direction, 2.0 * half, kinks)
        return plane, base, segments, float(steps.min())

    def take_trace(
        self,
        trace: Trace,
        plane: FloatArray,
        base: FloatArray,
        segments: Segments,
        step: float,
    ) -> bool:
        """Measure the normal of a trace and take it as a row, if it is one."""
        member, _ = segments.hits(
            trace.normal[None], np.array([trace.offset]), np.array([0.05 * step])
        )
        flat = [segments.crossings(line)[k] for line, k in enumerate(member[0]) if k >= 0]
        if len(flat) < 2:
            return False
        places = base + np.array(flat[:6]) @ plane
        found = measure_normal(self.reader.read, trace, plane, places, step)
        if found is None:
            return False
        row, bias, off = found
        trial = self.rows.with_row(row, bias)
        trial, seen = sharpen_rows(
            self.reader.read, trial, self.rng, only=trial.count - 1, off=off
        )
        if seen < SHOWN:
            return False
        if self.rows.apart(trial, trial.count - 1) < _SAME:
            return False
        self.rows = trial
        return True

    def sharpen(self) -> None:
        """Sharpen all rows once more, away from all others; drop those that are none."""
        with self.reader.run.stage("crossings") as details:
            keep = np.ones(self.rows.count, dtype=bool)
            for j in range(self.rows.count):
                self.rows, seen = sharpen_rows(self.reader.read, self.rows, self.rng, only=j)
                keep[j] = (
                    seen >= SHOWN
                    and self.rows.kept(keep & (np.arange(len(keep)) < j)).apart(self.rows, j)
                    > _SAME
                )
            self.rows = self.rows.kept(keep)
            details |= {"rows": self.rows.count}
