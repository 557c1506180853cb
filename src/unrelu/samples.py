"""Labelled samples: arrays, files on disk, dask arrays and streams of batches.

A :class:`SampleSource` yields batches ``(x, y)`` with ``x`` of shape ``(n, d)``
and ``y`` of shape ``(n,)``, always in the same order and never more rows at a
time than asked for, so that memory does not grow with the number of samples.
numpy data comes as float64; torch and cupy arrays stay what they are.

========================  =================================================
what :func:`as_source` takes
==========================================================================
two arrays                numpy, torch or cupy; memory-mapped arrays too
two ``.npy`` paths        memory-mapped
a folder                  of ``*.npz`` with ``x`` and ``y``, of pairs
                          ``x*.npy``/``y*.npy``, or of ``*.parquet``
a ``.npz``/``.parquet``   one file of the same
two dask arrays           chunks along the first axis
an iterable of pairs      a list or a dataset can be read again, a generator
                          only once; a function that returns an iterator can
========================  =================================================
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array

from unrelu.errors import InvalidInput, MissingExtra

__all__ = ["SampleSource", "as_source"]

Array = Any
Batch = tuple[Array, Array]

#: Rows per batch unless the caller says otherwise: long enough for a matrix
#: product to run at full speed, 16 MiB at d = 128.
BATCH_ROWS = 16384


#: Fourth moments of larger entries, and sums of as many, overflow.
_LARGEST = float(np.finfo(np.float64).max) ** 0.2


class SampleSource(abc.ABC):
    """Samples that can be read batch by batch.

    Attributes
    ----------
    input_dim
        d.
    count
        Number of samples, or None where only reading tells.
    restartable
        Whether :meth:`batches` can be called more than once.
    description
        For a person.
    """

    input_dim: int
    count: int | None
    restartable: bool = True
    description: str = "samples"

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """Yield checked batches of at most ``rows`` samples, in order."""
        if rows < 1:
            raise InvalidInput(f"a batch needs at least one row, got {rows}")
        start = 0
        for x, y in self._pieces(rows):
            for first in range(0, len(x), rows):
                piece = x[first : first + rows], y[first : first + rows]
                yield _checked(*piece, self.input_dim, start)
                start += len(piece[0])

    @abc.abstractmethod
    def _pieces(self, rows: int) -> Iterator[Batch]:
        """Yield raw batches of any length, in order."""

    def parts(self) -> list[Callable[[], SampleSource]]:
        """Independent pieces that other processes can read by themselves."""
        return [lambda: self]


def _checked(x: Array, y: Array, input_dim: int, start: int) -> Batch:
    """Bring one batch to its final form, or say which row is wrong."""
    if is_numpy_array(x) or not is_array_api_obj(x):
        if np.iscomplexobj(x) or np.iscomplexobj(y):
            raise InvalidInput("samples must be real numbers, not complex ones")
        try:
            x = np.ascontiguousarray(x, dtype=np.float64)
            y = np.ascontiguousarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"samples must be numbers: {error}") from error
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if x.ndim != 2 or x.shape[1] != input_dim or y.ndim != 1 or len(x) != len(y):
        raise InvalidInput(
            f"samples from row {start} on have shapes {tuple(x.shape)} and {tuple(y.shape)}, "
            f"expected (n, {input_dim}) and (n,)"
        )
    if isinstance(x, np.ndarray):
        for name, values in (("x", x), ("y", y)):
            if not np.isfinite(values.sum()) and not np.isfinite(values).all():
                bad = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
                row = start + int(np.flatnonzero(bad)[0])
                raise InvalidInput(f"row {row} of {name} contains NaN or infinity")
            if max(values.max(initial=0.0), -values.min(initial=0.0)) > _LARGEST:
                raise InvalidInput(
                    f"{name} has entries beyond {_LARGEST:g} from row {start} on: products of "
                    "four would leave the range of float64; scale them to the order of 1"
                )
    return x, y


class _ArraySource(SampleSource):
    """Two arrays of one namespace, memory-mapped or not."""

    def __init__(self, x: Array, y: Array, description: str = "arrays") -> None:
        if not is_array_api_obj(x):
            x, y = np.asarray(x), np.asarray(y)
        elif is_numpy_array(x):
            y = np.asarray(y)
        if x.ndim != 2:
            raise InvalidInput(f"x must have shape (n, d), got {tuple(x.shape)}")
        if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] != 1):
            raise InvalidInput(
                f"y must have shape (n,) or (n, 1), got {tuple(y.shape)}: "
                "a network with several outputs is learned one output at a time"
            )
        if x.shape[0] != y.shape[0]:
            raise InvalidInput(f"x has {x.shape[0]} rows but y has {y.shape[0]}")
        if x.shape[1] == 0:
            raise InvalidInput("x has no columns")
        self._x, self._y = x, y
        self.input_dim, self.count = int(x.shape[1]), int(x.shape[0])
        self.description = description

    def _pieces(self, rows: int) -> Iterator[Batch]:
        for start in range(0, len(self._x), rows):
            yield self._x[start : start + rows], self._y[start : start + rows]


class _FileSource(SampleSource):
    """Files of one kind, read one after the other."""

    def __init__(self, files: list[tuple[Path, ...]], target: str, description: str) -> None:
        self._files, self._target = files, target
        self.description = description
        counts = [self._shape(file) for file in files]
        dims = {dim for _, dim in counts}
        if len(dims) != 1:
            raise InvalidInput(f"{description}: the files have different widths {sorted(dims)}")
        self.input_dim = dims.pop()
        self.count = sum(rows for rows, _ in counts)

    def _shape(self, file: tuple[Path, ...]) -> tuple[int, int]:
        kind = file[0].suffix
        if kind == ".parquet":
            metadata = _parquet(file[0]).metadata
            names = metadata.schema.names
            if self._target not in names:
                raise InvalidInput(f"{file[0]} has no column '{self._target}' (has {names})")
            return int(metadata.num_rows), len(names) - 1
        x = _load_npz(file[0])[0] if kind == ".npz" else _open_npy(file[0])
        if x.ndim != 2:
            raise InvalidInput(f"{file[0]}: x must have shape (n, d), got {x.shape}")
        return int(x.shape[0]), int(x.shape[1])

    def _pieces(self, rows: int) -> Iterator[Batch]:
        for file in self._files:
            yield from _read_file(file, rows, self._target)

    def parts(self) -> list[Callable[[], SampleSource]]:
        """One piece per file."""
        return [_FilePart(file, self._target) for file in self._files]


class _FilePart:
    """Opens one file of a folder; small enough to send to another process."""

    def __init__(self, file: tuple[Path, ...], target: str) -> None:
        self._file, self._target = file, target

    def __call__(self) -> SampleSource:
        return _FileSource([self._file], self._target, str(self._file[0]))


class _DaskSource(SampleSource):
    """Two dask arrays, chunked along the first axis."""

    def __init__(self, x: Array, y: Array) -> None:
        if x.ndim != 2:
            raise InvalidInput(f"x must have shape (n, d), got {x.shape}")
        x = x.rechunk({1: -1})
        y = y.reshape(-1).rechunk((x.chunks[0],))
        self.input_dim, self.count = int(x.shape[1]), int(x.shape[0])
        self.description = "dask arrays"
        self.chunk_rows = [int(rows) for rows in x.chunks[0]]
        # One delayed pair per chunk: the scheduler reads each where it lies.
        self.chunks = list(
            zip(x.to_delayed().ravel().tolist(), y.to_delayed().ravel().tolist(), strict=True)
        )

    def _pieces(self, rows: int) -> Iterator[Batch]:
        import dask

        for pair in self.chunks:
            x, y = dask.compute(*pair)
            yield x, y


class _StreamSource(SampleSource):
    """An iterable of batches; one that is its own iterator is read only once."""

    count = None

    def __init__(self, stream: Iterable[Batch] | Callable[[], Iterable[Batch]]) -> None:
        self._open: Callable[[], Iterable[Batch]]
        self.restartable = True
        if callable(stream):
            self._open = stream
        elif iter(stream) is stream:
            self.restartable = False
            self._open = lambda: stream
        else:
            self._open = lambda: stream
        self.description = "a stream of batches"
        self._first: Batch | None = None
        self._iterator = iter(self._open())
        try:
            first = next(self._iterator)
        except StopIteration:
            raise InvalidInput("the stream of batches is empty") from None
        if not (isinstance(first, (tuple, list)) and len(first) == 2):
            raise InvalidInput("a stream must yield pairs (x, y)")
        shape = np.shape(first[0])
        if len(shape) != 2:
            raise InvalidInput(f"a stream must yield x of shape (n, d), got {shape}")
        self._first = (first[0], first[1])
        self.input_dim = int(shape[1])

    def _pieces(self, rows: int) -> Iterator[Batch]:
        if self._first is not None:
            first, self._first = self._first, None
            yield first
            yield from ((x, y) for x, y in self._iterator)
            return
        if not self.restartable:
            raise InvalidInput("this stream was already read; pass a function that opens it anew")
        yield from ((x, y) for x, y in self._open())


def as_source(x: Any, y: Any = None, *, target: str = "y") -> SampleSource:
    """Return a :class:`SampleSource` for whatever holds the samples.

    Parameters
    ----------
    x
        Points; or, with ``y`` None, a path or an iterable of batches.
    y
        Labels, or None where ``x`` brings them.
    target
        Name of the label column in Parquet files.
    """
    if isinstance(x, SampleSource):
        return x
    if isinstance(x, (str, os.PathLike)):
        return _from_path(Path(x), y, target)
    if y is not None:
        if type(x).__module__.split(".")[0] == "dask":
            return _DaskSource(x, y)
        return _ArraySource(x, y)
    if is_array_api_obj(x):
        raise InvalidInput("labels are missing: pass y beside x")
    if callable(x) or isinstance(x, Iterable):
        return _StreamSource(x)
    raise InvalidInput(f"cannot read samples from {type(x).__name__}")


def _from_path(path: Path, y: Any, target: str) -> SampleSource:
    if not path.exists():
        raise InvalidInput(f"{path} does not exist")
    if path.is_file():
        if path.suffix in (".npz", ".parquet"):
            return _FileSource([(path,)], target, str(path))
        if path.suffix == ".npy" and isinstance(y, (str, os.PathLike)):
            return _FileSource([(path, Path(y))], target, str(path))
        if path.suffix == ".npy" and y is not None:
            return _ArraySource(_open_npy(path), y, str(path))
        raise InvalidInput(f"{path}: expected .npz or .parquet, or a .npy file and one of labels")
    for suffix in (".parquet", ".npz"):
        files = sorted(path.glob(f"*{suffix}"))
        if files:
            return _FileSource([(file,) for file in files], target, str(path))
    points = sorted(path.glob("x*.npy"))
    labels = [file.with_name("y" + file.name[1:]) for file in points]
    missing = [file.name for file in labels if not file.exists()]
    if missing:
        raise InvalidInput(f"{path}: labels are missing: {', '.join(missing[:5])}")
    if not points:
        raise InvalidInput(f"{path} holds no *.parquet, *.npz or x*.npy/y*.npy files")
    return _FileSource(list(zip(points, labels, strict=True)), target, str(path))


def _open_npy(path: Path) -> Array:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InvalidInput(f"{path} is not a readable .npy file: {error}") from error


def _load_npz(path: Path) -> Batch:
    try:
        with np.load(path, allow_pickle=False) as data:
            return data["x"], data["y"]
    except KeyError as error:
        raise InvalidInput(f"{path} must hold arrays 'x' and 'y': {error}") from error
    except Exception as error:  # a damaged archive raises whatever its first wrong byte means
        raise InvalidInput(f"{path} is not a readable .npz file: {error}") from error


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "reading Parquet files") from None
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} is not a readable Parquet file: {error}") from error


def _read_file(file: tuple[Path, ...], rows: int, target: str) -> Iterator[Batch]:
    """Yield one file's batches; .npy by plain reads, so that pages are not kept."""
    kind = file[0].suffix
    if kind == ".parquet":
        handle = _parquet(file[0])
        names = [name for name in handle.schema_arrow.names if name != target]
        for table in handle.iter_batches(batch_size=rows):
            columns = [table.column(name).to_numpy(zero_copy_only=False) for name in names]
            y = table.column(target).to_numpy(zero_copy_only=False)
            yield np.column_stack(columns), np.asarray(y)
    elif kind == ".npz":
        yield _load_npz(file[0])
    else:
        length = len(_open_npy(file[0]))
        for start in range(0, length, rows):
            # Opened anew for each batch: a mapping that lives on keeps every
            # page that was read counted against this process.
            x = np.array(_open_npy(file[0])[start : start + rows])
            y = np.array(_open_npy(file[1])[start : start + rows])
            yield x, y
