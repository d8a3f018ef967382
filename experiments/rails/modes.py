"""The modes of a rail experiment: what the switches are, which policy controls them, and how figures show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Mode = Literal["native", "electrical", "one-shot", "on-demand", "provisioned", "rotor", "demand"]


@dataclass(frozen=True)
class ModeSpec:
    """One mode: ``fabric`` is that of its switches (empty: ``fabric.kind``), ``policy`` the default one.

    ``swept``: jobs wait for circuits, so the mode is measured at each delay, and not at 0 alone. ``slots``: experts'
    all-to-alls move in slots, all else on demand. ``colour`` (of Okabe and Ito) and ``marker`` are those of figures.
    """

    fabric: str
    policy: str
    colour: str
    marker: str
    swept: bool = False
    slots: bool = False


MODES: Mapping[Mode, ModeSpec] = {
    "native": ModeSpec("", "static", "#000000", "*"),
    "electrical": ModeSpec("electrical", "electrical", "#009E73", "s"),
    "one-shot": ModeSpec("one-shot", "one-shot", "#CC79A7", "D"),
    "on-demand": ModeSpec("ocs", "opus", "#D55E00", "o", swept=True),
    "provisioned": ModeSpec("ocs", "opus", "#0072B2", "^", swept=True),
    "rotor": ModeSpec("ocs", "rotor", "#E69F00", "P", swept=True, slots=True),
    "demand": ModeSpec("ocs", "demand", "#56B4E9", "X", swept=True, slots=True),
}
"""All modes, in the order of tables and figures."""
assert tuple(MODES) == get_args(Mode)
OWN_POLICY: tuple[Mode, ...] = ("on-demand", "provisioned")
"""The modes whose policy may be another than the default one."""
