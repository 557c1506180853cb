"""Every public name shows an example, and every example does what it shows."""

from __future__ import annotations

import doctest
import sys

import pytest

import unrelu

NAMES = sorted(
    name for name in unrelu.__all__ if callable(getattr(unrelu, name)) and name != "planted"
)


def examples(name: str) -> list[doctest.DocTest]:
    thing = getattr(unrelu, name)
    module = sys.modules[thing.__module__]
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(thing, name, module=module, globs=dict(vars(module)))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_docstring_has_an_example_that_runs(name):
    assert any(test.name == name for test in examples(name)), f"unrelu.{name} shows no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    told: list[str] = []
    for test in examples(name):
        runner.run(test, out=told.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(told)
