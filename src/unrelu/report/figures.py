"""Figures as text: SVG that follows the page's colours, and small PNG images."""

from __future__ import annotations

import base64
import dataclasses
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

from unrelu._types import FloatArray

__all__ = ["Series", "bar_chart", "line_chart", "pictures_image", "weights_image"]


class _Canvas(NamedTuple):
    """A drawing and the margins around its axes, in units of the drawing."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


TILES = 64
"""Units whose weights are shown."""
CANVAS = _Canvas(640, 320, left=92, right=16, top=34, bottom=54)
MARGIN, ROW = 16, 42  # of bars: their names stand above them
_HATCH = (
    '<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="8"/></pattern>'
    "</defs>"
)


@dataclasses.dataclass(frozen=True)
class Series:
    """A named curve; ``dots`` draws points instead of a line."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dots: bool = False


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        every = max(1, math.ceil((last - first) / 6))
        return [10.0**k for k in range(first, last + 1, every)]
    span = high - low or 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(k for k in (1, 2, 5, 10) if span / (k * step) <= 6)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _label(y: float, log: bool) -> str:
    """Write a tick's value; powers of ten short, as phones are narrow."""
    if log and not 0.01 <= y <= 100.0:
        return f"1e{round(math.log10(y))}"
    return f"{y:.3g}"


def _tick(x: float, y: float, text: str) -> str:
    """Write a value below its place; what stands near an edge grows inwards, whatever its size."""
    edge = CANVAS.left / 2
    anchor = "start" if x < edge else "end" if x > CANVAS.width - edge else "middle"
    return f'<text x="{x:.1f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


class _Axes:
    """Maps data to the drawing and draws the frame."""

    def __init__(
        self, x: Sequence[float], y: Sequence[float], log_y: bool, labels: tuple[str, str]
    ) -> None:
        self.log_y = log_y
        self.x0, self.x1 = min(x), max(x)
        self.y0, self.y1 = min(y), max(y)
        if self.x0 == self.x1:
            self.x0, self.x1 = self.x0 - 1, self.x1 + 1
        if log_y:
            self.y0 = 10.0 ** math.floor(math.log10(self.y0))
            self.y1 = 10.0 ** max(math.ceil(math.log10(self.y1)), math.log10(self.y0) + 1)
        elif self.y0 == self.y1:
            self.y0, self.y1 = self.y0 - 1, self.y1 + 1
        self.labels = labels

    def px(self, x: float) -> float:
        across = CANVAS.width - CANVAS.left - CANVAS.right
        return CANVAS.left + (x - self.x0) / (self.x1 - self.x0) * across

    def py(self, y: float) -> float:
        if self.log_y:
            part = math.log(y / self.y0) / math.log(self.y1 / self.y0)
        else:
            part = (y - self.y0) / (self.y1 - self.y0)
        return CANVAS.height - CANVAS.bottom - part * (CANVAS.height - CANVAS.top - CANVAS.bottom)

    def frame(self, x_ticks: bool = True) -> list[str]:
        parts = []
        for y in _ticks(self.y0, self.y1, self.log_y):
            if not self.y0 * (1 - 1e-9) <= y <= self.y1 * (1 + 1e-9) and self.log_y:
                continue
            place = self.py(y)
            parts.append(
                f'<line class="grid" x1="{CANVAS.left}" x2="{CANVAS.width - CANVAS.right}" '
                f'y1="{place:.1f}" y2="{place:.1f}"/>'
                f'<text x="{CANVAS.left - 6}" y="{place + 4:.1f}" text-anchor="end">'
                f"{_label(y, self.log_y)}</text>"
            )
        if x_ticks:
            below = CANVAS.height - CANVAS.bottom + 20
            parts += [_tick(self.px(x), below, f"{x:,.4g}")
                      for x in _ticks(self.x0, self.x1, False)]  # fmt: skip
        middle = (CANVAS.height - CANVAS.bottom + CANVAS.top) / 2
        parts.append(
            f'<text x="{(CANVAS.width + CANVAS.left) / 2:.0f}" y="{CANVAS.height - 8}" '
            'text-anchor="middle">'
            f"{escape(self.labels[0])}</text>"
            f'<text transform="translate(18 {middle:.0f}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.labels[1])}</text>"
        )
        return parts


def _svg(parts: Sequence[str], description: str, height: float = CANVAS.height) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {CANVAS.width} {height}" role="img" tabindex="0" '
        f'aria-label="{escape(description)}">{"".join(parts)}</svg>'
    )


def _key(names: Sequence[str]) -> list[str]:
    """Name the curves above the frame, each in its colour."""
    parts, x = [], float(CANVAS.left)
    for i, name in enumerate(names):
        parts.append(f'<text class="c{i} key" x="{x:.0f}" y="20">{escape(name)}</text>')
        x += 11.0 * len(name) + 24.0
    return parts


def line_chart(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    description: str,
    log_y: bool = False,
    marks: Sequence[float] = (),
) -> Markup:
    """Return curves over common axes; ``marks`` are ticked below them."""
    xs = [x for s in series for x in s.x]
    ys = [y for s in series for y in s.y if math.isfinite(y) and (y > 0 or not log_y)]
    if not xs or not ys:
        return Markup("")
    axes = _Axes(xs, ys, log_y, (x_label, y_label))
    parts = axes.frame() + _key([curve.name for curve in series])
    parts += [
        f'<line class="mark" x1="{axes.px(x):.1f}" x2="{axes.px(x):.1f}" '
        f'y1="{CANVAS.height - CANVAS.bottom}" y2="{CANVAS.height - CANVAS.bottom - 9}"/>'
        for x in marks
        if axes.x0 <= x <= axes.x1
    ]
    for i, curve in enumerate(series):
        places = [
            (axes.px(x), axes.py(y))
            for x, y in zip(curve.x, curve.y, strict=True)
            if math.isfinite(y) and (y > 0 or not log_y)
        ]
        if curve.dots:
            parts += [f'<circle class="c{i}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
                      for x, y in places]  # fmt: skip
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline class="c{i}" points="{path}"/>')
    return _svg(parts, description)


def bar_chart(
    names: Sequence[str],
    values: Sequence[float | None],
    *,
    x_label: str,
    description: str,
    dots: Sequence[float] = (),
    key: Sequence[str] = (),
) -> Markup:
    """Return named bars on a logarithmic axis; what is unknown (None) is hatched, never short.

    ``dots`` are drawn on the bars, where they are not zero.
    """
    if not values:
        return Markup("")
    known = [value for value in (*values, *dots) if value is not None and value > 0]
    low = 10.0 ** math.floor(math.log10(max(min(known, default=0.1) / 10, 1e-17)))
    height = CANVAS.top + ROW * len(names) + CANVAS.bottom
    bottom = height - CANVAS.bottom

    def px(value: float) -> float:
        part = math.log(min(max(value, low), 1.0) / low) / math.log(1.0 / low)
        return MARGIN + part * (CANVAS.width - MARGIN - CANVAS.right)

    parts = [_HATCH, *_key(key)]
    for tick in _ticks(low, 1.0, True):
        if tick <= 1.0:
            parts.append(
                f'<line class="grid" x1="{px(tick):.1f}" x2="{px(tick):.1f}" y1="{CANVAS.top}" '
                f'y2="{bottom}"/>{_tick(px(tick), bottom + 18, _label(tick, True))}'
            )
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        top = CANVAS.top + ROW * i
        parts.append(f'<text x="{MARGIN}" y="{top + 16}">{escape(name)}</text>')
        parts.append(_bar(name, value, top + 22, px))
        if i < len(dots) and dots[i] > 0:
            parts.append(
                f'<circle class="c1 big" cx="{px(dots[i]):.1f}" cy="{top + 28}" r="6">'
                f"<title>{escape(name)}: {dots[i]:.2g}</title></circle>"
            )
    parts.append(
        f'<text x="{CANVAS.width / 2:.0f}" y="{height - 8}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
    )
    return _svg(parts, description, height)


def _bar(name: str, value: float | None, top: float, px: Callable[[float], float]) -> str:
    """Draw one bar: its length is the value; hatched and named where it is not known."""
    end = CANVAS.width - CANVAS.right
    if value is None:
        return (
            f'<rect class="unknown" x="{MARGIN}" y="{top}" width="{end - MARGIN}" height="12">'
            f"<title>{escape(name)}: unknown</title></rect>"
            f'<text x="{end}" y="{top - 6}" text-anchor="end">unknown</text>'
        )
    width = max(1.0, px(value) - MARGIN)
    return (
        f'<rect class="c0" x="{MARGIN}" y="{top}" width="{width:.1f}" height="12">'
        f"<title>{escape(name)}: {value:.2g}</title></rect>"
    )


def weights_image(weights: FloatArray, shape: tuple[int, int]) -> str:
    """Return the largest units' weights as one PNG of tiles, a ``data:`` address."""
    order = np.argsort(-np.linalg.norm(weights, axis=1))[:TILES]
    tiles = weights[order]
    largest = np.abs(tiles).max(axis=1, keepdims=True)
    return _tiles(127.5 + 127.5 * tiles / np.where(largest > 0, largest, 1.0), shape)


def pictures_image(pictures: FloatArray, shape: tuple[int, int]) -> str:
    """Return pictures beside each other as one PNG, each over its own range of grey."""
    low = pictures.min(axis=1, keepdims=True)
    span = np.ptp(pictures, axis=1, keepdims=True)
    return _tiles(255.0 * (pictures - low) / np.where(span > 0, span, 1.0), shape)


def _tiles(grey: FloatArray, shape: tuple[int, int]) -> str:
    """Arrange rows of grey values 0..255 as tiles of one image, up to eight a line."""
    height, width = shape
    columns = min(8, len(grey))
    rows = -(-len(grey) // columns)
    grid = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 128, dtype=np.uint8)
    for place, values in enumerate(grey):
        row, column = divmod(place, columns)
        top, left = row * (height + 1) + 1, column * (width + 1) + 1
        pixels = np.round(values).astype(np.uint8).reshape(height, width)
        grid[top : top + height, left : left + width] = pixels
    return "data:image/png;base64," + base64.b64encode(_png(grid)).decode()


def _png(grey: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """Encode an 8-bit grey image (PNG, ISO/IEC 15948)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    height, width = grey.shape
    lines = b"".join(b"\0" + grey[i].tobytes() for i in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )
