"""The modes of a rail experiment: what the switches are, and which policy controls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Mode = Literal["native", "electrical", "one-shot", "on-demand", "provisioned", "rotor", "demand"]


@dataclass(frozen=True)
class ModeSpec:
    """One mode: ``fabric`` is that of its switches (empty: ``fabric.kind``), ``policy`` the default one.

    ``swept``: jobs wait for circuits, so the mode is measured at each delay, and not at 0 alone. ``slots``: experts'
    all-to-alls move in slots, all else on demand.
    """

    fabric: str
    policy: str
    swept: bool = False
    slots: bool = False


MODES: Mapping[Mode, ModeSpec] = {
    "native": ModeSpec("", "static"),
    "electrical": ModeSpec("electrical", "electrical"),
    "one-shot": ModeSpec("one-shot", "one-shot"),
    "on-demand": ModeSpec("ocs", "opus", swept=True),
    "provisioned": ModeSpec("ocs", "opus", swept=True),
    "rotor": ModeSpec("ocs", "rotor", swept=True, slots=True),
    "demand": ModeSpec("ocs", "demand", swept=True, slots=True),
}
"""All modes, in the order of tables and figures."""
assert tuple(MODES) == get_args(Mode)
OWN_POLICY: tuple[Mode, ...] = ("on-demand", "provisioned")
"""The modes whose policy may be another than the default one."""
