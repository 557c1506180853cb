import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.samples import as_source


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((1000, 3)), rng.standard_normal(1000)


def _same(source, data, rows=128):
    x, y = (np.concatenate(parts) for parts in zip(*source.batches(rows), strict=True))
    np.testing.assert_array_equal(x, data[0])
    np.testing.assert_array_equal(y, data[1])
    assert source.input_dim == 3
    for batch, _ in source.batches(rows) if source.restartable else ():
        assert len(batch) <= rows


def _split(data):
    return [(data[0][:300], data[1][:300]), (data[0][300:], data[1][300:])]


def test_arrays(data):
    _same(as_source(*data), data)
    _same(as_source(data[0], data[1][:, None]), data)
    _same(as_source(data[0].tolist(), data[1].tolist()), data)
    source = as_source(*data)
    assert as_source(source) is source
    assert source.count == 1000


def test_a_list_can_be_read_again_and_a_generator_not(data):
    again = as_source(_split(data))
    _same(again, data)
    _same(again, data)
    _same(as_source(lambda: iter(_split(data))), data)
    once = as_source(iter(_split(data)))
    assert not once.restartable
    _same(once, data)
    with pytest.raises(InvalidInput, match="already read"):
        list(once.batches())


def test_npy_folder_and_files(data, tmp_path):
    for i, (x, y) in enumerate(_split(data)):
        np.save(tmp_path / f"x_{i}.npy", x)
        np.save(tmp_path / f"y_{i}.npy", y)
    source = as_source(tmp_path)
    _same(source, data)
    assert source.count == 1000
    assert [part().count for part in source.parts()] == [300, 700]
    np.save(tmp_path / "all.npy", data[0])
    np.save(tmp_path / "labels.npy", data[1])
    _same(as_source(tmp_path / "all.npy", tmp_path / "labels.npy"), data)
    _same(as_source(str(tmp_path / "all.npy"), data[1]), data)


def test_npz_folder(data, tmp_path):
    for i, (x, y) in enumerate(_split(data)):
        np.savez(tmp_path / f"part{i}.npz", x=x, y=y)
    _same(as_source(tmp_path), data)
    _same(as_source(str(tmp_path)), data)
    np.savez(tmp_path / "wrong.npz", x=data[0])
    with pytest.raises(InvalidInput, match="'x' and 'y'"):
        as_source(tmp_path / "wrong.npz")


def test_parquet_folder(data, tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for i, (x, y) in enumerate(_split(data)):
        columns = {"label": y} | {f"x{j}": x[:, j] for j in range(3)}
        parquet.write_table(pa.table(columns), tmp_path / f"part{i}.parquet")
    _same(as_source(tmp_path, target="label"), data)
    with pytest.raises(InvalidInput, match="no column 'y'"):
        as_source(tmp_path)


def test_dask_arrays(data):
    array = pytest.importorskip("dask.array")
    x = array.from_array(data[0], chunks=(200, 2))
    _same(as_source(x, array.from_array(data[1], chunks=300)), data)


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (np.zeros((3, 2)), np.zeros(4), "3 rows but y has 4"),
        (np.zeros(3), np.zeros(3), r"shape \(n, d\)"),
        (np.zeros((3, 2)), np.zeros((3, 2)), "one output at a time"),
        (np.zeros((3, 0)), np.zeros(3), "no columns"),
        (np.zeros((3, 2)), None, "labels are missing"),
        ("nowhere", None, "does not exist"),
        (5, None, "cannot read samples from int"),
        (iter([]), None, "empty"),
        (iter([1, 2]), None, "pairs"),
        ([(np.zeros(3), np.zeros(3))], None, r"\(n, d\)"),
    ],
)
def test_bad_input_is_refused(x, y, match):
    with pytest.raises(InvalidInput, match=match):
        as_source(x, y)


def test_nan_is_found_with_its_row(data):
    x, y = data
    y[777] = np.nan
    with pytest.raises(InvalidInput, match="row 777 of y"):
        list(as_source(x, y).batches(100))
    with pytest.raises(InvalidInput, match="numbers"):
        list(as_source(np.array([["a", "b"]]), np.zeros(1)).batches())


def test_bad_folders(tmp_path):
    with pytest.raises(InvalidInput, match="holds no"):
        as_source(tmp_path)
    np.save(tmp_path / "x_0.npy", np.zeros((2, 2)))
    with pytest.raises(InvalidInput, match=r"y_0\.npy"):
        as_source(tmp_path)
    with pytest.raises(InvalidInput, match="one of labels"):
        as_source(tmp_path / "x_0.npy")
    with pytest.raises(InvalidInput, match="at least one row"):
        next(as_source(np.zeros((2, 2)), np.zeros(2)).batches(0))
