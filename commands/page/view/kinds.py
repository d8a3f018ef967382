"""The looks of all kinds of things that a page shows, as plain data: those of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from measure.figures.looks import ACTIVITIES, COSTS, DARK, DIMENSIONS, MARKS, MODELS, PARTS, WHITE, Look

BARS: Mapping[str, Look] = {
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
        for kind, look in {**MARKS, **BARS}.items()
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
