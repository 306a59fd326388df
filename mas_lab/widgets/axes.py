"""Compute the axes of a figure's picture: value ranges, pixel positions and tick labels.

This module leaves out drawing them (`svg`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Axis:
    """An axis of a panel with `box` = (left, top, right, bottom) in pixels; a log axis has log10 `low` and `high`."""

    letter: str
    layout: dict[str, Any]
    box: tuple[float, float, float, float]
    low: float = 0.0
    high: float = 1.0
    names: list[str] = field(default_factory=list)
    """Names along the axis in their order, if it shows names instead of numbers."""

    @property
    def is_log(self) -> bool:
        return self.layout.get("type") == "log"

    def at(self, value: Any) -> float | None:
        """Return the pixel of a value, or `None` if the axis cannot show it."""
        if isinstance(value, str):
            value = self.names.index(value)
        if value is None or not np.isfinite(value) or (self.is_log and value <= 0):
            return None
        share = ((math.log10(value) if self.is_log else float(value)) - self.low) / (self.high - self.low)
        left, top, right, bottom = self.box
        return left + share * (right - left) if self.letter == "x" else bottom - share * (bottom - top)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield (pixel, label) of each tick."""
        for value, label in self._labels():
            place = math.log10(value) if self.is_log else value
            if min(self.low, self.high) - 1e-9 <= place <= max(self.low, self.high) + 1e-9:
                yield self.at(value), label

    def _labels(self) -> Iterator[tuple[float, str]]:
        low, high = sorted((self.low, self.high))
        if (given := self.layout.get("tickvals")) is not None:
            texts = self.layout.get("ticktext")
            yield from zip(given, texts if texts is not None else [f"{value:g}" for value in given], strict=True)
        elif self.names:
            yield from enumerate(self.names)
        elif self.is_log:
            digits = range(1, 10) if high - low < 0.8 else (1, 2, 5) if high - low < 3 else (1,)
            powers = range(math.floor(low), math.ceil(high) + 1)
            yield from ((digit * 10.0**power, f"{digit * 10.0**power:g}") for power in powers for digit in digits)
        else:
            room = (self.box[2] - self.box[0]) / 45 if self.letter == "x" else (self.box[3] - self.box[1]) / 35
            step = _step(high - low, min(self.layout.get("nticks", 8), 8, max(2, int(room))))
            decimals = max(0, -math.floor(math.log10(step)))
            for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
                yield number * step, f"{number * step:,.{decimals}f}"

    @property
    def beside(self) -> float:
        """Return the pixels between the panel and a vertical axis's title, which leave room for the labels."""
        labels = [label for _, label in self.ticks()] if self.has_labels else []
        return 20 + 6.4 * max((len(line) for label in labels for line in label.split("<br>")), default=0)

    @property
    def has_labels(self) -> bool:
        return self.layout.get("showticklabels") is not False


def _step(span: float, most: int) -> float:
    """Return 1, 2 or 5 times a power of ten, such that at most `most` steps fit into `span`."""
    power = 10.0 ** math.floor(math.log10(max(span, 1e-12) / most))
    return next(digit * power for digit in (1, 2, 5, 10, 20) if span / (digit * power) <= most)


def axes_of(traces: Sequence[dict], layout: dict, box: tuple[float, float, float, float]) -> dict[str, Axis]:
    """Return all axes of a figure that is drawn in `box`, by plotly's short names: x, y, x2, ..."""
    axes = {name: _placed(name, layout, box) for name in _names(traces, layout)}
    for axis in axes.values():
        anchor = axes.get(axis.layout.get("anchor") or ("y" if axis.letter == "x" else "x"))
        if anchor is not None and axis.letter == "x":
            axis.box = axis.box[0], anchor.box[1], axis.box[2], anchor.box[3]
    for axis in axes.values():
        anchor = axes.get(axis.layout.get("anchor") or "x")
        if anchor is not None and axis.letter == "y":
            axis.box = anchor.box[0], axis.box[1], anchor.box[2], axis.box[3]
    for name, axis in axes.items():
        matched = axis.layout.get("matches", name)
        alike = [one for one, other in axes.items() if other.layout.get("matches", one) == matched or one == matched]
        _span(axis, [trace for trace in traces if trace.get(f"{axis.letter}axis", axis.letter) in alike])
    for axis in axes.values():
        if (other := axis.layout.get("scaleanchor")) in axes:
            _square(axis, axes[other])
    return axes


def _names(traces: Sequence[dict], layout: dict) -> list[str]:
    named = [name.replace("axis", "") for name in layout if name[1:5] == "axis"]
    used = [trace.get(f"{letter}axis", letter) for trace in traces for letter in "xy"]
    return list(dict.fromkeys([*named, *used]))


def _placed(name: str, layout: dict, box: tuple[float, float, float, float]) -> Axis:
    own = layout.get(f"{name[0]}axis{name[1:]}", {})
    start, end = own.get("domain") or (0, 1)
    left, top, right, bottom = box
    if name[0] == "x":
        box = left + start * (right - left), top, left + end * (right - left), bottom
    else:
        box = left, bottom - end * (bottom - top), right, bottom - start * (bottom - top)
    return Axis(name[0], own, box)


def _span(axis: Axis, traces: Sequence[dict]) -> None:
    """Set the range to the one in the layout, or else from the smallest to the largest value of the traces."""
    if (given := axis.layout.get("range")) is not None:
        axis.low, axis.high = map(float, given)
        return
    values, whole = [], False
    axis.names = list(axis.layout.get("categoryarray") or ())
    for trace in traces:
        found, is_whole = _values(trace, axis)
        values += found
        whole = whole or is_whole
    numbers = np.array([value for value in values if value is not None], float)
    numbers = numbers[np.isfinite(numbers) & ((numbers > 0) | (not axis.is_log))]
    numbers = np.log10(numbers) if axis.is_log else numbers
    if not len(numbers):
        numbers = np.array([0.0, 1.0])
    low, high = numbers.min(), numbers.max()
    pad = 0.0 if whole else 0.05 * (high - low) or 0.5
    start = 0.0 if axis.layout.get("rangemode") in ("tozero", "nonnegative") and not axis.is_log else low - pad
    if low == 0 and any(trace.get("type") in ("bar", "histogram") for trace in traces):
        start = 0.0
    axis.low, axis.high = start, high + pad
    if axis.layout.get("autorange") == "reversed":
        axis.low, axis.high = axis.high, axis.low


def _values(trace: dict, axis: Axis) -> tuple[list, bool]:
    """Return the values of a trace along an axis, and whether they fill the axis without padding."""
    kind = trace.get("type", "scatter")
    if kind == "heatmap":
        count = np.shape(trace["z"])[axis.letter == "x"]
        return [-0.5, count - 0.5], True
    held = list(trace.get(axis.letter, ()))
    if any(isinstance(value, str) for value in held):
        axis.names += [name for name in dict.fromkeys(held) if name not in axis.names]
    if kind == "strip" and axis.letter == "x":
        return [-0.5, len(axis.names) - 0.5], True
    if kind in ("bar", "histogram"):
        bars = [(bar[:2] if bar[2] == axis.letter else bar[3:]) for bar in bars_of(trace)]
        return [end for bar in bars for end in bar], False
    return [axis.names.index(value) if isinstance(value, str) else value for value in held], False


def bars_of(trace: dict) -> Iterator[tuple[float, float, str, float, float]]:
    """Yield (low, high, axis of these two, 0, height) of each bar of a trace, without a histogram's empty bins."""
    if trace["type"] == "histogram":
        bins, values = trace["xbins"], np.asarray(trace["x"], float)
        number = np.floor((values[np.isfinite(values)] - bins["start"]) / bins["size"] + 1e-9)
        for one, count in zip(*np.unique(number, return_counts=True), strict=True):
            low = bins["start"] + one * bins["size"]
            yield low, low + bins["size"], "x", 0.0, float(count)
        return
    flat = trace.get("orientation") == "h"
    names, heights = (trace["y"], trace["x"]) if flat else (trace["x"], trace["y"])
    for place, (name, height) in enumerate(zip(names, heights, strict=True)):
        middle = place if isinstance(name, str) else name
        half = 0.5 * (trace.get("width") or 0.8)
        yield middle - half, middle + half, "y" if flat else "x", 0.0, height


def _square(axis: Axis, other: Axis) -> None:
    """Give one unit the same length on both axes, by shortening the longer side of the panel."""
    sides = {one.letter: one.box[2] - one.box[0] if one.letter == "x" else one.box[3] - one.box[1]
             for one in (axis, other)}  # fmt: skip
    unit = min(sides[one.letter] / abs(one.high - one.low) for one in (axis, other))
    left, top, right, bottom = axis.box
    wide, tall = (unit * abs(one.high - one.low) for one in sorted((axis, other), key=lambda one: one.letter))
    middle, level = (left + right) / 2, (top + bottom) / 2
    box = middle - wide / 2, level - tall / 2, middle + wide / 2, level + tall / 2
    axis.box = other.box = box
