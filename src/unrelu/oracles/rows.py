"""Rows like those that a target is meant for: arrays, or .npy, .csv and .parquet files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput, MissingExtra

__all__ = ["as_rows"]


def as_rows(data: Any, d: int) -> FloatArray:
    """Return ``data`` as a float64 array ``(n, d)`` of our own, or raise.

    Parameters
    ----------
    data
        Something like an array, of shape ``(n, d)`` or ``(n, *shape)`` with d entries a row; or
        the path of a ``.npy``, ``.csv`` (a first line of names is skipped) or ``.parquet`` file.
    d
        Number of inputs of the target.
    """
    name = "data"
    if isinstance(data, (str, os.PathLike)):
        name = os.fspath(data)
        data = _read(Path(data))
    try:
        rows = np.array(data, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} does not hold numbers alone: {error}") from error
    if rows.ndim > 2:
        rows = rows.reshape(len(rows), -1)
    if rows.ndim != 2 or rows.shape[1] != d:
        raise InvalidInput(
            f"{name} must hold rows of {d} inputs, as the target takes; got shape {rows.shape}"
        )
    if len(rows) < 2:  # no spread could be told
        raise InvalidInput(f"{name} must hold at least 2 rows, got {len(rows)}")
    if not np.isfinite(rows).all():
        raise InvalidInput(
            f"{name} contains NaN or infinite entries; drop or fill those rows first"
        )
    return rows


def _read(path: Path) -> Any:
    """Return what a file holds."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if suffix == ".csv":
            return _read_csv(path)
        if suffix == ".parquet":
            return _read_parquet(path)
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no file {path}") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    raise InvalidInput(f"{path}: data are read from .npy, .csv or .parquet files")


def _read_csv(path: Path) -> FloatArray:
    with path.open(encoding="utf-8-sig") as file:
        first = file.readline()
    try:
        [float(cell) for cell in first.split(",")]
        names = 0
    except ValueError:
        names = 1
    return np.loadtxt(path, delimiter=",", skiprows=names, ndmin=2, encoding="utf-8-sig")


def _read_parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "reading Parquet files") from None
    table = parquet.read_table(path)
    return np.column_stack([column.to_numpy() for column in table.columns])
