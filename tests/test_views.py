"""How a result looks: text, notebook, figure."""

from __future__ import annotations

import dataclasses

import pytest

from unrelu import extract_two_layer, recover_span
from unrelu.planted import random_network

NETWORK = random_network(8, 4, 2, rng=0)


@pytest.fixture(scope="module")
def result():
    return extract_two_layer(NETWORK, rng=0)


def test_text_fits_a_screen(result):
    text = str(result)
    lines = text.splitlines()
    assert lines[0] == "TwoLayerResult: RECOVERED"
    assert "8-4-2" in text
    assert len(lines) <= 24
    assert max(map(len, lines[2:])) <= 80
    assert sum(result.queries.by_stage.values()) == result.queries.total


def test_a_notebook_gets_a_table_that_escapes(result):
    hostile = dataclasses.replace(result, message="<script>alert(1)</script>")
    shown = hostile._repr_html_()
    assert "<script>" not in shown
    assert shown.count("<tr>") == shown.count("</tr>") > 3


@pytest.mark.parametrize("found", ["network", "span", "nothing"])
def test_a_figure_has_three_panels(result, found):
    shown = result
    if found == "span":
        shown = recover_span(NETWORK, rng=0)
    if found == "nothing":
        shown = dataclasses.replace(result, network=None, certificate=None)
    figure = shown.plot()
    assert [axes.get_title() for axes in figure.axes][1:] == ["queries by stage", "certificate"]
    figure.canvas.draw()
