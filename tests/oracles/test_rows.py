"""Rows like the user's: where they are read from, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from unrelu import InvalidInput, connect
from unrelu.oracles.rows import as_rows

ROWS = np.arange(12.0).reshape(4, 3)


def test_files_and_arrays_give_the_same_rows(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    np.savetxt(tmp_path / "plain.csv", ROWS, delimiter=",")
    (tmp_path / "named.csv").write_text(
        "a,b,c\n" + "\n".join(",".join(map(str, row)) for row in ROWS)
    )
    for source in (ROWS, ROWS.tolist(), tmp_path / "x.npy", str(tmp_path / "plain.csv"),
                   tmp_path / "named.csv"):  # fmt: skip
        assert np.array_equal(as_rows(source, 3), ROWS)
    assert as_rows(np.zeros((5, 2, 3)), 6).shape == (5, 6)  # images become rows


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pyarrow.table({name: ROWS[:, i] for i, name in enumerate("abc")}), tmp_path / "x.parquet"
    )
    assert np.array_equal(as_rows(tmp_path / "x.parquet", 3), ROWS)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (ROWS[:, :2], "rows of 3 inputs"),
        (ROWS[:1], "at least 2 rows"),
        (np.where(ROWS == 4, np.nan, ROWS), "NaN"),
        ([["a", "b", "c"]] * 2, "numbers alone"),
        ("nowhere.npy", "no file"),
        ("rows.txt", ".npy, .csv or .parquet"),
    ],
)
def test_what_is_refused(data, words):
    with pytest.raises(InvalidInput, match=words):
        as_rows(data, 3)


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "x.npy").write_text("no array")
    (tmp_path / "x.csv").write_text("1,2,3\n4,5\n")
    for name in ("x.npy", "x.csv"):
        with pytest.raises(InvalidInput, match=name):
            as_rows(tmp_path / name, 3)


def test_rows_scales_and_ranges_by_feature():
    seen = []

    def target(x):
        seen.append(x)
        return x.sum(axis=1)

    scale = np.array([1.0, 10.0, 100.0])
    oracle = connect(target, input_dim=3, output_dim=1, scale=scale, data=ROWS,
                     input_range=(np.zeros(3), [1.0, 10.0, 200.0]))  # fmt: skip
    assert np.array_equal(oracle.data, ROWS / scale)
    assert np.array_equal(oracle.box[1], [1.0, 1.0, 2.0])
    oracle(np.full((1, 3), 0.5))
    assert np.array_equal(seen[-1], [[0.5, 5.0, 50.0]])
    with pytest.raises(InvalidInput, match="outside the range"):
        oracle(np.full((1, 3), 1.5))
    for options in ({"scale": [1.0, 2.0]}, {"scale": [1.0, -1.0, 1.0]},
                    {"input_range": ([0, 0, 0], [1, 0, 1])}):  # fmt: skip
        with pytest.raises(InvalidInput):
            connect(target, input_dim=3, output_dim=1, **options)
