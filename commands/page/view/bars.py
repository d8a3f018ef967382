"""The bars of one lane of a time line, of a window or thinned to pixels; their names, and the looks of their kinds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.figures.looks import ACTIVITIES, COSTS, DARK, DIMENSIONS, MARKS, MODELS, PARTS, WHITE, Look

KINDS = (
    "compute",
    "dp",
    "edp",
    "pp",
    "ep",
    "tp",
    "cp",
    "world",
    "other",
    "ask",
    "dark",
    "wait",
    "start",
    "failed",
    "checkpoint",
    "stage",
    "get",
    "train",
    "push",
    "trunk",
    "round",
)
"""The kinds of bars; a bar has the index of its kind."""
KIND = {name: number for number, name in enumerate(KINDS)}
SEVERAL = 0
"""Label of a bar that stands for several short ones."""
BAR = np.dtype([("s", "f8"), ("e", "f8"), ("k", "u1"), ("l", "i4"), ("b", "f4"), ("st", "i4"), ("p", "i4")])
"""A bar: start and end in seconds, kind, label, bytes, step (-1: none), and the peer's port or the group (0: none)."""
Table = NDArray[Any]
"""An array of ``BAR``, in the order of the starts."""
_FLUSH, _MANY = 256, 512
Row = tuple[float, float, int, int, float, int, int]


class Bars:
    """The bars of one lane, in any order; ``table`` returns them by start."""

    __slots__ = ("_new", "_reach", "_size", "_sorted", "_space", "_thin")

    def __init__(self) -> None:
        self._space: Table = np.empty(0, BAR)
        self._size = 0
        self._new: list[Row] = []
        self._sorted = True
        self._reach: NDArray[np.float64] | None = None
        self._thin: tuple[float, Bars] | None = None
        """A width and all bars thinned to it, while no bar is added."""

    def __len__(self) -> int:
        return self._size + len(self._new)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, without what is not in the columns yet."""
        return self._space.nbytes + (0 if self._reach is None else self._reach.nbytes)

    def add(
        self, start: float, end: float, kind: int, label: int, size: float = 0, step: int = -1, ref: int = 0
    ) -> None:
        """Add a bar; ``ref`` is the port of the peer, or a number that the owner of the lane gives a meaning."""
        self._new.append((start, end, kind, label, size, step, ref))
        if len(self._new) >= _FLUSH:
            self._take()

    def extend(self, rows: Table) -> None:
        self._take()
        self._append(rows)

    def table(self) -> Table:
        """All bars by start; the array is only valid until the next bar is added."""
        self._take()
        if not self._sorted:
            part = self._space[: self._size]
            part[:] = part[np.argsort(part["s"], kind="stable")]
            self._sorted = True
        return self._space[: self._size]

    def changed(self) -> None:
        """Say that bars of ``table`` were changed in place, though not their times."""
        self._thin = None

    def thinned(self, start: float, end: float, width: float) -> Table:
        """The bars that overlap the window, ``thinned``; of a large part of many they are kept for the next window."""
        self._take()
        if self._thin is not None and self._thin[0] == width:
            return self._thin[1].within(start, end)
        found = self.within(start, end)
        if len(found) < _MANY or 4 * len(found) < self._size:
            return thinned(found, width)
        whole = Bars()
        whole.extend(thinned(self.table(), width))
        self._thin = width, whole
        return whole.within(start, end)

    def within(self, start: float, end: float) -> Table:
        """The bars that overlap [``start``, ``end``), and moments in it."""
        rows = self.table()
        if self._reach is None:
            self._reach = np.maximum.accumulate(rows["e"]) if len(rows) else np.empty(0)
        first = int(np.searchsorted(self._reach, start, "right"))
        begin, last = (int(place) for place in np.searchsorted(rows["s"], (start, end), "left"))
        if first >= begin:  # no bar that began before the window reaches into it
            return rows[begin:last]
        reaching = rows[first:begin]["e"] > start
        if reaching.all():
            return rows[first:last]
        inside: Table = np.concatenate((rows[first:begin][reaching], rows[begin:last]))
        return inside

    def at(self, t: float) -> Table:
        found = self.within(t, math.nextafter(t, math.inf))
        here: Table = found[(found["s"] <= t) & (t < found["e"])]
        return here

    def _take(self) -> None:
        if self._new:
            rows, self._new = np.array(self._new, BAR), []
            self._append(rows)

    def _append(self, rows: Table) -> None:
        if not len(rows):
            return
        size = self._size + len(rows)
        if size > len(self._space):
            grown = np.empty(max(size, 2 * self._size if self._size < 4096 else self._size * 5 // 4), BAR)
            grown[: self._size] = self._space[: self._size]
            self._space = grown
        self._space[self._size : size] = rows
        starts = self._space["s"][max(0, self._size - 1) : size]
        self._sorted = self._sorted and bool((starts[1:] >= starts[:-1]).all())
        self._size, self._reach, self._thin = size, None, None


def thinned(rows: Table, width: float) -> Table:
    """Bars by start, where those shorter than ``width`` seconds (a pixel) that begin in one pixel have become one bar.

    Such a bar lasts from the first start to the last end, and has the kind with the most time in it. So every moment
    that a bar covered is still covered, and none is that is further than a pixel from such a moment. Pixels are
    counted from 0, so that the same bars are joined wherever a window begins.
    """
    if width <= 0 or len(rows) < 2:
        return rows
    short = rows["e"] - rows["s"] < width
    small = rows[short]
    if len(small) < 2:
        return rows
    cells = np.floor(small["s"] / width)
    firsts = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))
    if len(firsts) == len(small):
        return rows
    counts = np.diff(np.append(firsts, len(small)))
    joined = small[firsts].copy()
    joined["e"] = np.maximum.reduceat(small["e"], firsts)
    joined["b"] = np.add.reduceat(small["b"], firsts)
    several = np.flatnonzero(counts > 1)
    cell = np.repeat(np.arange(len(firsts)), counts)
    time = small["e"] - small["s"] + 1e-12
    most = np.bincount(cell * len(KINDS) + small["k"], weights=time, minlength=len(firsts) * len(KINDS))
    joined["k"][several] = most.reshape(len(firsts), len(KINDS)).argmax(axis=1)[several]
    joined["l"][several] = SEVERAL
    joined["p"][several] = 0
    found = np.concatenate((rows[~short], joined))
    return found[np.argsort(found["s"], kind="stable")]


# ---- names of bars ---------------------------------------------------------------------------------------------------


FIRST = "several, each shorter than a pixel"


class Labels:
    """Texts and their numbers; number 0 is ``FIRST``."""

    def __init__(self) -> None:
        self.texts = [FIRST]
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number


# ---- looks of bars and marks -----------------------------------------------------------------------------------------


LOOKS: Mapping[str, Look] = {
    "compute": ACTIVITIES["compute"],
    **DIMENSIONS,
    "other": ACTIVITIES["rewired"],
    "ask": ACTIVITIES["wait"].named("waits for the controller"),
    "dark": ACTIVITIES["dark"],
    "wait": COSTS["peers"],
    "start": ACTIVITIES["start"],
    "failed": ACTIVITIES["failed"],
    "checkpoint": PARTS["checkpoint"],
    "stage": PARTS["start"].named("starts up"),
    **MODELS,
}
"""Kinds of bars on a time line and of circuits. A rank waits while other members of its group are late, and asks from
when the last of them has asked until the controller answers: on optical switches, until the circuits stand."""


LEAST_CONTRAST = 3.0
"""What WCAG 2.2 asks of graphics (success criterion 1.4.11)."""
_LIGHTEST, _DARKEST = 242, 42
"""What black and white become on a dark ground, from 0 to 255."""


def looks() -> dict[str, dict[str, str]]:
    """How each kind of bar and of mark looks: its name, hatch, marker and colours.

    ``colour`` is that of areas on white, as in the figures, and ``colour_dark`` on a dark ground. ``line`` and
    ``line_dark`` are those of thin lines such as circuits, which have to stand out.
    """
    return {
        kind: {
            "name": look.name,
            "colour": look.colour,
            "colour_dark": on_dark(look.colour),
            "line": standing_out(look.colour, WHITE),
            "line_dark": standing_out(on_dark(look.colour), DARK),
            "hatch": look.hatch,
            "marker": look.marker,
        }
        for kind, look in {**MARKS, **LOOKS}.items()
    }


def on_dark(colour: str) -> str:
    """A colour (``#RRGGBB``) for a dark ground: greys from black to white change sides, all others stay as they are."""
    red, green, blue = _parts(colour)
    if not red == green == blue:
        return colour
    return _colour([_LIGHTEST - red * (_LIGHTEST - _DARKEST) / 255] * 3)


def standing_out(colour: str, ground: str) -> str:
    """The colour, or the one nearest to it on the way to black or white that has ``LEAST_CONTRAST`` on ``ground``."""
    end = 0 if _luminance(ground) > 0.5 else 255
    for percent in range(101):
        found = _colour([part + (end - part) * percent / 100 for part in _parts(colour)])
        if contrast(found, ground) >= LEAST_CONTRAST:
            return found
    return found


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2.2 defines it, from 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    """The relative luminance of a colour as WCAG 2.2 defines it, from 0 to 1."""
    shares = [part / 255 for part in _parts(colour)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _parts(colour: str) -> list[int]:
    """Red, green and blue of a colour, from 0 to 255."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _colour(parts: Iterable[float]) -> str:
    return "#" + "".join(f"{round(part):02X}" for part in parts)
