"""What the engine wants done: values that the live controller carries out and the predictor plays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controllers.circuits.circuits import Matching
from railyard.protocol import Hop, SlotWindow
from railyard.timeline import Event, Source


@dataclass(frozen=True)
class Ack:
    """``rank`` may use ``paths`` now: request ``index`` of ``group`` is granted (for ``slot_window``, if any)."""

    rank: int
    group: str
    index: int
    paths: tuple[Hop, ...]
    slot_window: SlotWindow | None = None


@dataclass(frozen=True)
class SlotEnds:
    """At ``at`` the circuits of ``switches`` shall go dark for the next slot of a rotation: call ``end_slot`` then."""

    group: str
    index: int
    slot_window: SlotWindow
    at: float
    switches: tuple[str, ...]


@dataclass(frozen=True)
class CheckedIn:
    """All members of ``group`` are here. ``asks``: it must request before each phase; otherwise ``paths`` are final.
    ``rotates``: its circuits will come and go in turns.
    """

    rank: int
    group: str
    domain: str
    asks: bool
    paths: tuple[Hop, ...]
    rotates: bool = False


@dataclass(frozen=True)
class Refuse:
    """``rank`` gets no ack for ``index`` (None: for its check-in), and why, in one sentence.

    ``lost``: because another member is gone, which is that one's end and not a mistake of this one.
    """

    rank: int
    group: str
    index: int | None
    reason: str
    lost: bool = False


@dataclass(frozen=True)
class Darken:
    """Take the light off ``ports`` of ``switch``, go from ``before`` to ``after``, and call ``lit`` after ``delay_s``.

    ``before`` and ``after`` are all circuits of the switch; only ``ports`` differ. ``quiet``: nobody sends before it is
    told of the light, as in a rotation, so the switch may be lit earlier than ``lit`` is called.
    """

    reconfiguration_id: int
    switch: str
    ports: frozenset[int]
    before: Matching
    after: Matching
    delay_s: float
    quiet: bool = False


@dataclass(frozen=True)
class Reroute:
    """After ``delay_s`` ask which routes are due (``Engine.routes_due``), send them, and call ``rerouted``."""

    reconfiguration_id: int
    delay_s: float


@dataclass(frozen=True)
class MembersChanged:
    """Whoever watches over ``job`` can be told now (``Engine.news``)."""

    job: str


@dataclass(frozen=True)
class Registered:
    """The starting circuits of ``job`` stand."""

    job: str


@dataclass(frozen=True)
class RegisterRefused:
    """The starting circuits of ``job`` could not be set up; the job is forgotten."""

    job: str
    reason: str


@dataclass(frozen=True)
class Rewired:
    """The rewiring that ``ticket`` stands for is tuned."""

    ticket: object


@dataclass(frozen=True)
class RewireRefused:
    """The rewiring that ``ticket`` stands for was not done, and why."""

    ticket: object
    reason: str


@dataclass(frozen=True)
class Note:
    """Something for the timeline (``railyard.timeline`` lists the kinds and fields)."""

    kind: str
    t: float
    end: float | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    source: Source = "controller"

    def event(self) -> Event:
        """The event to write."""
        return Event(self.t, self.source, self.kind, self.end, self.fields)


Action = (
    Ack
    | SlotEnds
    | CheckedIn
    | Refuse
    | Darken
    | Reroute
    | MembersChanged
    | Registered
    | RegisterRefused
    | Rewired
    | RewireRefused
    | Note
)
