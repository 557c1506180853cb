"""A network from rounded probabilities: fits from random starts, on few inputs first.

Rounded probabilities show no kinks on lines. But on a random subspace of few dimensions a
network somewhat wider than needed has few parameters, and a fit of all of them from a random
start finds every unit: coarsely first, since the few answers that are nearly exact outvote all
others else. What is not needed is left out, and the units are taken to all inputs by a fit as
well, to points that leave the subspace by a little and by more.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.fit import Fitted, Layered
from unrelu.core.run import Run
from unrelu.extraction.noisy_answers import Answers, Seen
from unrelu.extraction.noisy_config import NoisyConfig
from unrelu.extraction.noisy_search import Space
from unrelu.extraction.noisy_units import without_needless

__all__ = ["Student"]

_ROWS = 4.0
"""Answers of a fit over those of one that starts beside its optimum: from a random start, and
where most probabilities round to zero or one."""
_LEAVES = 0.05
"""Least distance at which points leave the subspace, over typical ones: few units switch."""


@dataclasses.dataclass(frozen=True)
class Student:
    """Fits networks to rounded probabilities."""

    answers: Answers
    run: Run
    config: NoisyConfig

    def learn(self) -> tuple[Fitted, list[Seen]]:
        """Return a network on all inputs, and what it was fitted to."""
        space = Space(self.config.dimension, self.answers.inputs, self.run.rng)
        net = self.on_subspace(space)
        seen = []
        if not space.whole:
            net, lifting = self.lifted(space, net)
            seen.append(lifting)
        with self.run.stage("fit") as details:
            rows = int(_ROWS * self.answers.rows(net.parameters, self.config.effort))
            scale = self.scales(rows, 1.0)
            draw = scale * self.run.rng.standard_normal((rows, self.answers.inputs))
            seen.append(self.answers.ask(draw))
            fitted = self.answers.fit(net, Seen.joined(seen))
            details |= {"residual": fitted.scale, "units": len(net.biases[0]), "rows": rows}
        return fitted, seen

    def scales(self, rows: int, most: float) -> FloatArray:
        """Draw sizes of inputs, from where most answers can be read on, ``(rows, 1)``."""
        low, high = np.log(self.answers.reach), np.log(max(most, self.answers.reach))
        return np.exp(self.run.rng.uniform(low, high, size=(rows, 1)))

    def on_subspace(self, space: Space) -> Layered:
        """Fit from random starts, until one explains the answers; returns the best."""
        width, dimension = self.config.student, len(space.rows)
        best: Fitted | None = None
        seen: list[Seen] = []
        for start in range(self.config.starts):
            with self.run.stage("trial fit") as details:
                net = self.random_network(width, dimension)
                rows = int(_ROWS * self.answers.rows(net.parameters, self.config.effort))
                missing = rows - sum(map(len, seen))
                if missing > 0:
                    scale = self.scales(missing, 2.0 * self.answers.reach)
                    draw = scale * self.run.rng.standard_normal((missing, dimension))
                    seen.append(space.coordinates(self.answers.ask(space.points(draw))))
                data = Seen.joined(seen)
                found = self.answers.fit_readings(net, data)
                details |= {"residual": found.scale, "units": width, "rows": len(data)}
                if max(found.scale, found.rms) < self.config.fits:
                    found, dropped = without_needless(self.answers, found, data, thorough=False)
                    details |= {"dropped": dropped}
                    return found.network
            if best is None or found.rms < best.rms:
                best = found
            width = width * 2 if start % 2 else width
        assert best is not None
        return best.network

    def lifted(self, space: Space, net: Layered) -> tuple[Layered, Seen]:
        """Take a network on a subspace to all inputs."""
        assert net.skip is not None
        rng = self.run.rng
        above = dataclasses.replace(
            net,
            weights=(space.normals(net.weights[0]), net.weights[1]),
            skip=space.normals(net.skip),
        )
        with self.run.stage("gradients") as details:
            rows = self.answers.rows(above.parameters, self.config.effort)
            inside = space.points(rng.standard_normal((rows, len(space.rows))))
            away = np.exp(rng.uniform(np.log(_LEAVES), 0.0, size=(rows, 1)))
            outside = away * rng.standard_normal((rows, len(space.across))) @ space.across
            scale = self.scales(rows, 2.0 * self.answers.reach)
            seen = self.answers.ask(scale * (inside + outside))
            found = self.answers.fit_readings(above, seen)
            details |= {"residual": found.scale, "units": len(net.biases[0]), "rows": rows}
        return found.network, seen

    def random_network(self, width: int, dimension: int) -> Layered:
        """Draw a network whose units switch at inputs whose answers can be read."""
        rng, m = self.run.rng, self.answers.outputs
        weights = rng.standard_normal((width, dimension))
        biases = self.answers.reach * rng.standard_normal(width)
        outputs = rng.standard_normal((m, width)) / np.sqrt(width)
        skip = np.zeros((m, dimension))
        return Layered((weights, outputs), (biases, np.zeros(m)), skip).normalised()
