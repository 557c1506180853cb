"""One run of the extraction from noisy answers: its stages, in order."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.fit import FitConfig, Fitted, Layered
from unrelu.core.run import Run
from unrelu.extraction.noisy_answers import Answers, Seen
from unrelu.extraction.noisy_config import NoisyConfig
from unrelu.extraction.noisy_follow import Against, Chords
from unrelu.extraction.noisy_search import (
    LineUnits,
    Space,
    Unreadable,
    lifted,
    recurring,
    survey_line,
    with_outputs,
)
from unrelu.extraction.noisy_student import Student
from unrelu.extraction.noisy_units import (
    add_missing_unit,
    with_unit,
    without_needless,
    without_skip,
    without_units,
)
from unrelu.extraction.price import price_noisy

__all__ = ["NoisyConfig", "NoisyRun"]


_LACKING = 5.0
_LEAST = 3e-4
"""Units are missing where least squares for the outputs leaves so many times what the errors of
the hyperplanes explain; these are no less than ``_LEAST``."""


_TRIAL_STEPS = 12
"""Steps of a trial fit while there are lines left: with all units it needs half as many."""
_VANISHED = 0.05
"""What is left of a skip term, over the units' slopes, up to which a fit without one is tried:
the lift is right to a hundredth or better."""


_TINY = float(np.finfo(np.float64).tiny)


def _explained(net: Layered, errors: FloatArray) -> float:
    """Return what errors ``(k,)`` of the normals leave, over what all units together do."""
    size = np.linalg.norm(net.weights[1], axis=0)
    return float(np.linalg.norm(size * errors) / max(float(np.linalg.norm(size)), _TINY))


class NoisyRun:
    """Every stage works on the network known so far."""

    def __init__(self, run: Run, config: NoisyConfig) -> None:
        self.run, self.oracle, self.rng, self.config = run, run.target, run.rng, config
        self.answers: Answers
        self.fitted: Fitted | None = None
        self.seen: list[Seen] = []  # on all inputs, for the last fit
        self.drawn = 0  # typical inputs among them
        self.signs = False
        self.left = 0.0  # by least squares over the units that lines agree on, of the spread

    @property
    def kind(self) -> str:
        """What the answers are; values as long as nothing was seen."""
        return self.answers.kind if hasattr(self, "answers") else "values"

    @property
    def network(self) -> Layered | None:
        """The network as far as it is known."""
        return None if self.fitted is None else self.fitted.network

    def look(self, answers: str) -> None:
        """Find out what the answers are, and their precision."""
        with self.run.stage("calibration") as details:
            self.answers = Answers.look(self.oracle, answers, self.rng)
            details |= {"answers": self.answers.kind, "decimals": self.answers.step}

    # ---------------------------------------------------------------- search

    def search(self, dimension: int) -> tuple[Space, Layered] | None:
        """Find the units on a subspace.

        None where no line can be read, or where lines do not show the same hyperplanes, as those
        of a second hidden layer do not: least squares over all of them then leaves much.
        """
        d = self.oracle.input_dim
        space = Space(dimension, d, self.rng)
        seen: list[Seen] = []
        typical: list[Seen] = []
        lines: list[LineUnits] = []
        fitted: Fitted | None = None
        known = -1
        for number in range(self.config.lines):
            try:
                with self.run.stage("line search") as details:
                    lines.append(survey_line(self.answers, space, self.rng, seen))
                    details |= {"kinks": len(lines[-1].errors)}
            except Unreadable:
                continue
            choices = self.choices(lines)
            count = len(choices[0][1])
            self.oracle.allowance.plan(
                price_noisy(d, self.answers.outputs, max(count, len(lines[-1].errors)))
            )
            last = number + 1 == self.config.lines or count == known
            enough = float(np.median([line.kinks for line in lines]))
            if last or any(len(errors) >= enough for _, errors in choices):
                fitted = self.trial(choices, space, seen, typical, last=last)
            known = count if len(lines) > 1 else known
            if fitted is not None and (last or self.explains(fitted)):
                break
        if fitted is None:
            return None
        data, local = self.local(space, seen, typical)
        fitted = self.complete(local, fitted, data, spare=len(lines) > 1)
        self.left = self.unexplained(fitted.network, data)
        if self.left > self.config.useful:
            return None
        if space.whole:
            self.seen += seen + typical
            self.drawn = sum(map(len, typical))
        return space, fitted.network

    def choices(self, lines: list[LineUnits]) -> list[tuple[Layered, FloatArray]]:
        """Return units with errors: what two lines show, and all where that is few more."""
        everything = recurring(lines, 1)
        if len(lines) == 1:
            return [everything]
        sure = recurring(lines, 2)
        few = len(everything[1]) <= len(sure[1]) + self.config.additions
        return [sure, everything] if few else [sure]

    def unexplained(self, net: Layered, data: Seen) -> float:
        """Return what a network leaves of readings, over their spread."""
        z = self.answers.readings(data.y)
        readable = np.isfinite(z).all(axis=1)
        left = z[readable] - self.read(net)(data.x[readable])
        spread = float(np.linalg.norm(z[readable].std(axis=0)))
        return float(np.sqrt(np.mean(np.sum(left**2, axis=1)))) / max(spread, _TINY)

    def local(self, space: Space, seen: list[Seen], typical: list[Seen]) -> tuple[Seen, Answers]:
        """Return what was asked at typical coordinates, and its reading there."""
        near = space.coordinates(Seen.joined(seen))
        size = np.sqrt(len(space.rows))
        near = near.part(np.linalg.norm(near.x, axis=1) < 1.5 * size)
        some = self.rng.permutation(len(near))[: sum(map(len, typical)) // 2]
        near = near.part(some)
        answers = copy.copy(self.answers)
        noise = self.answers.noise
        answers.noise = dataclasses.replace(noise, growth=noise.growth * space.scale)
        return Seen.joined([space.coordinates(part) for part in typical] + [near]), answers

    def trial(
        self,
        choices: list[tuple[Layered, FloatArray]],
        space: Space,
        seen: list[Seen],
        typical: list[Seen],
        *,
        last: bool,
    ) -> Fitted | None:
        """Fit the units found so far to typical answers on the subspace.

        Of several choices the first is taken that least squares for the outputs alone does not
        show to lack units. None where all do, and there are lines left to find them on, or too
        much is missing for nearly dead units.
        """
        with self.run.stage("trial fit") as details:
            most = max(net.parameters for net, _ in choices)
            missing = self.answers.rows(most, self.config.effort) - sum(map(len, typical))
            if missing > 0:
                points = self.answers.reach * self.rng.standard_normal((missing, len(space.rows)))
                typical.append(self.answers.ask(space.points(points)))
            data, answers = self.local(space, seen, typical)
            for net, errors in choices:
                start, self.left = with_outputs(net, data.x, answers.readings(data.y))
                lacking = self.left > _LACKING * (_LEAST + _explained(start, errors))
                if not lacking:
                    break
            details |= {"units": len(errors), "before": self.left}
            if lacking and (not last or self.left > self.config.useful):
                return None
            config = FitConfig() if last else FitConfig(steps=_TRIAL_STEPS)
            fitted = answers.fit(self.answers.unread(start), data, config)
            details |= {"residual": fitted.scale, "steps": fitted.steps}
        return fitted

    def read(self, net: Layered) -> Layered:
        """Return the network of the readings: of log-odds over the reference class."""
        if self.answers.kind != "softmax":
            return net
        at = self.answers.reference

        def over(rows: FloatArray) -> FloatArray:
            return np.asarray(np.delete(rows, at, axis=0) - rows[at])

        return dataclasses.replace(
            net,
            weights=(*net.weights[:-1], over(net.weights[-1])),
            biases=(*net.biases[:-1], over(net.biases[-1])),
            skip=None if net.skip is None else over(net.skip),
        )

    def explains(self, fitted: Fitted) -> bool:
        """Whether noise explains what a fit leaves, of nearly all answers and of the rest."""
        limit = self.config.fits
        return fitted.scale < limit and fitted.rms < limit * max(1.0, fitted.scale)

    def complete(
        self, answers: Answers, fitted: Fitted, data: Seen, *, spare: bool = False
    ) -> Fitted:
        """Add units until the residual is noise or none helps, then drop those not needed.

        ``spare`` says that some may not be needed although none was added.
        """
        added, first = 0, fitted.scale
        while added < self.config.additions and not self.explains(fitted):
            if added >= self.config.patience and fitted.scale > 0.5 * first:
                break  # what is missing is not a unit
            with self.run.stage("residual search") as details:
                grown = add_missing_unit(answers, fitted, data, self.rng)
                details |= {"found": grown is not None}
            if grown is None:
                break
            fitted, added = grown, added + 1
        if (added or spare) and self.explains(fitted):
            with self.run.stage("residual search") as details:
                fitted, dropped = without_needless(answers, fitted, data)
                details |= {"dropped": dropped}
        return fitted

    def student(self) -> None:
        """Fit a network to rounded probabilities, from a random start."""
        self.oracle.allowance.plan(
            price_noisy(self.answers.inputs, self.answers.outputs, self.config.student)
        )
        self.fitted, self.seen = Student(self.answers, self.run, self.config).learn()

    # ------------------------------------------------------------------- all

    def lift(self, space: Space, net: Layered) -> bool:
        """Take the units to all inputs, and fit everything to answers there."""
        if not space.whole:
            with self.run.stage("gradients") as details:
                found = lifted(self.answers, self.read(net), space, self.rng, self.seen)
                if found is None:
                    return False
                above, sure = found
                details |= {"units": len(sure), "determined": int(sure.sum())}
            net = self.answers.unread(without_units(above, ~sure, Seen.joined(self.seen).x))
        self.fit_all(net)
        return True

    def fit_all(self, net: Layered) -> None:
        """Fit all parameters to typical answers, units added while the residual shows them."""
        with self.run.stage("fit") as details:
            missing = max(0, self.answers.rows(net.parameters, self.config.effort) - self.drawn)
            draw = self.rng.standard_normal((missing, self.answers.inputs))
            # What a lift asked lies at few places: it says little beside typical inputs.
            self.seen = (
                [self.nearby(), self.answers.ask(draw)] if self.drawn else [self.answers.ask(draw)]
            )
            self.seen.append(self.answers.ask(self.beside(net, Seen.joined(self.seen).x)))
            data = Seen.joined(self.seen)
            turned = without_skip(self.centred(net))
            if turned is not None and turned[1] < _VANISHED:
                self.fitted = self.answers.fit(turned[0], data)
            if self.fitted is None or not self.explains(self.fitted):
                self.fitted = self.answers.fit(net, data)
            details |= {
                "residual": self.fitted.scale,
                "rows": len(data),
                "skip": self.fitted.network.skip is not None,
            }
        self.fitted = self.complete(self.answers, self.fitted, data, spare=True)

    def nearby(self) -> Seen:
        """Return what was asked at inputs that are no longer than typical ones."""
        empty = Seen(np.empty((0, self.answers.inputs)), np.empty((0, self.answers.outputs)))
        known = Seen.joined([empty, *self.seen])
        near = np.linalg.norm(known.x, axis=1) < 1.5 * np.sqrt(self.answers.inputs)
        return known.part(near)

    def beside(self, net: Layered, x: FloatArray) -> FloatArray:
        """Return inputs on the side of each hyperplane that too few of ``x`` lie on."""
        net = net.normalised()
        d = x.shape[1]
        wanted = int(np.ceil(self.config.sides * (d + 1)))
        on = (x @ net.weights[0].T + net.biases[0] > 0).sum(axis=0)
        found = [np.empty((0, d))]
        for j, count in enumerate(on):
            for side, there in ((1.0, count), (-1.0, len(x) - count)):
                missing = wanted - int(there)
                if missing <= 0:
                    continue
                draw = self.rng.standard_normal((missing, d))
                w, b = net.weights[0][j], net.biases[0][j]
                height = draw @ w + b
                # as far beyond the hyperplane as typical inputs scatter
                beyond = side * np.abs(self.rng.standard_normal(missing))
                found.append(draw + (beyond - height)[:, None] * w)
        return np.concatenate(found)

    def follow(self, failed: Seen, against: Against) -> bool:
        """Go on from what contradicts the network; whether that changed it.

        Units are searched on chords. Where these show none, wrong slopes may be why: then it is
        fitted again, with what a certificate asked.
        """
        assert self.fitted is not None
        self.seen.append(failed)
        width = len(self.fitted.network.biases[0])
        while len(self.fitted.network.biases[0]) < width + self.config.additions:
            with self.run.stage("residual search") as details:
                grown = self.with_unit_towards(against)
                details |= {"found": grown is not None}
            if grown is None:
                break
            self.fit_more(grown)
        if len(self.fitted.network.biases[0]) == width:
            if len(failed) == 0:
                return False
            self.fit_more(self.fitted.network)
        self.signs = False
        data = Seen.joined(self.seen)
        self.fitted = self.complete(self.answers, self.fitted, data, spare=True)
        return True

    def with_unit_towards(self, against: Against) -> Layered | None:
        """Return the network with the first unit on a chord to one of some answers."""
        assert self.fitted is not None
        net, data = self.with_skip(self.fitted.network), Seen.joined(self.seen)
        chords = Chords(self.answers, self.read(net), data, against.tolerance)
        left = against.seen.x[chords.missed(against.seen)]
        for bad in left[: self.config.patience]:
            unit = chords.unit_towards(bad)
            if unit is not None:
                row, bias, outputs = unit
                if self.answers.kind == "softmax":
                    outputs = np.insert(outputs, self.answers.reference, 0.0)
                return with_unit(net, row, bias, outputs)
        return None

    def fit_more(self, net: Layered) -> None:
        """Fit with answers on both sides of every hyperplane."""
        with self.run.stage("fit") as details:
            data = Seen.joined(self.seen)
            self.seen.append(self.answers.ask(self.beside(net, data.x)))
            data = Seen.joined(self.seen)
            self.fitted = self.answers.fit(self.with_skip(net), data)
            details |= {"residual": self.fitted.scale, "rows": len(data)}

    @staticmethod
    def with_skip(net: Layered) -> Layered:
        """Return the network with a skip term, zero where it had none."""
        if net.skip is not None:
            return net
        d, *_, m = net.widths
        return dataclasses.replace(net, skip=np.zeros((m, d)))

    def tidy(self) -> None:
        """Turn units so that no skip term is left, where that is possible."""
        assert self.fitted is not None
        data = Seen.joined(self.seen)
        with self.run.stage("signs"):
            self.signs = self.fitted.network.skip is None
            turned = without_skip(self.centred(self.fitted.network))
            if self.signs or turned is None:
                return
            again = self.answers.fit(turned[0], data)
            self.signs = self.explains(again)
            if self.signs:
                self.fitted = again

    def centred(self, net: Layered) -> Layered:
        """Take from a softmax's outputs what is common to all of them."""
        if self.answers.kind != "softmax":
            return net
        return dataclasses.replace(
            net,
            weights=(net.weights[0], net.weights[1] - net.weights[1].mean(axis=0)),
            biases=(net.biases[0], net.biases[1] - net.biases[1].mean()),
            skip=None if net.skip is None else net.skip - net.skip.mean(axis=0),
        )
