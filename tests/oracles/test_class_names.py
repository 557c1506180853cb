"""Class names that a target answers."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu.errors import InvalidAnswer
from unrelu.oracles import connect
from unrelu.oracles.class_names import name_code
from unrelu.oracles.wrappers import Rounded


def test_names_get_numbers_that_do_not_depend_on_their_order():
    x = np.arange(4.0)[:, None]
    words = np.array(["b", "a", "b", "c"])
    oracle = connect(lambda x: words[x[:, 0].astype(int)], input_dim=1)
    answers = oracle(x)[:, 0]
    assert [oracle.class_names[v] for v in answers] == words.tolist()
    other = connect(lambda x: words[x[:, 0].astype(int)].tolist(), input_dim=1)
    assert (other(x[::-1])[:, 0] == answers[::-1]).all()
    assert Rounded(other, decimals=3).class_names == other.class_names


def test_names_that_read_as_numbers_keep_them():
    assert name_code("7") == 7.0
    assert np.isfinite(name_code("nan"))
    assert name_code("cat") != name_code("dog")
    oracle = connect(lambda x: np.array(["3", "ship"])[: len(x)], input_dim=1, output_dim=1)
    assert oracle(np.zeros((2, 1)))[:, 0].tolist() == [3.0, name_code("ship")]


@pytest.mark.parametrize("answer", [[["a", "b"]], "a", ["a", None], [["a"], ["b", "c"]]])
def test_other_text_is_no_answer(answer):
    oracle = connect(lambda x: answer, input_dim=1, output_dim=1)
    with pytest.raises(InvalidAnswer):
        oracle(np.zeros((len(answer), 1)))


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_name_may_have_its_score_beside_it(kind):
    words, scores = ["b", "a", "b"], [0.5, 1 / 3, 0.25]
    for order in (1, -1):
        rows = [kind(pair[::order]) for pair in zip(words, scores, strict=True)]
        oracle = connect(lambda x, rows=rows: rows[: len(x)], input_dim=1, output_dim=2)
        answers = oracle(np.zeros((3, 1)))[:, ::order]
        assert [oracle.class_names[v] for v in answers[:, 0]] == words
        assert answers[:, 1].tolist() == scores  # to the last digit
