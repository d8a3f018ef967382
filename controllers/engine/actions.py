"""The actions that the engine returns: plain values that the live controller executes and the predictor simulates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controllers.circuits.circuits import Matching
from railyard.protocol import Hop, SlotWindow
from railyard.timeline import Event, Source


@dataclass(frozen=True)
class Ack:
    """Grant of request ``index`` of ``group``: ``rank`` may use ``paths`` (during ``slot_window``, if any)."""

    rank: int
    group: str
    index: int
    paths: tuple[Hop, ...]
    slot_window: SlotWindow | None = None


@dataclass(frozen=True)
class SlotEnds:
    """End of a slot: at time ``at`` the circuits of ``switches`` go dark for the next one; call ``end_slot`` then."""

    group: str
    index: int
    slot_window: SlotWindow
    at: float
    switches: tuple[str, ...]


@dataclass(frozen=True)
class CheckedIn:
    """Answer to a check-in, once all members of ``group`` have checked in.

    ``asks``: the group must request circuits before each phase; otherwise ``paths`` are final. ``rotates``: the
    circuits of the group change slot by slot.
    """

    rank: int
    group: str
    domain: str
    asks: bool
    paths: tuple[Hop, ...]
    rotates: bool = False


@dataclass(frozen=True)
class Refuse:
    """Refusal of request ``index`` of ``rank`` (None: of its check-in), with the reason in one sentence.

    ``lost``: another member is gone or has failed, so the request itself was not wrong.
    """

    rank: int
    group: str
    index: int | None
    reason: str
    lost: bool = False


@dataclass(frozen=True)
class Darken:
    """Order to make ``ports`` of ``switch`` dark, change its circuits, and call ``reconfigured`` after ``delay_s``.

    ``before`` and ``after`` are all circuits of the switch; only ``ports`` differ. ``quiet``: no rank sends before it
    is told that the circuits are up, as in a rotation, so the switch may install them before the delay is over.
    ``not_before``: the ports are to go dark at this time, and not earlier.
    """

    reconfiguration_id: int
    switch: str
    ports: frozenset[int]
    before: Matching
    after: Matching
    delay_s: float
    quiet: bool = False
    not_before: float | None = None


@dataclass(frozen=True)
class Reroute:
    """Order to send new routes: after ``delay_s`` send the tables of ``Engine.routes_due``, then call ``rerouted``."""

    reconfiguration_id: int
    delay_s: float


@dataclass(frozen=True)
class MembersChanged:
    """Notice that ``Engine.changes_since`` has a new change of membership of ``job`` for its watchers."""

    job: str


@dataclass(frozen=True)
class Registered:
    """Notice that the starting circuits of ``job`` are up."""

    job: str


@dataclass(frozen=True)
class RegisterRefused:
    """Notice that the starting circuits of ``job`` could not be set up; the job is forgotten."""

    job: str
    reason: str


@dataclass(frozen=True)
class Rewired:
    """Notice that the rewiring by hand identified by ``ticket`` is tuned."""

    ticket: object


@dataclass(frozen=True)
class RewireRefused:
    """Notice that the rewiring by hand identified by ``ticket`` was refused, with the reason."""

    ticket: object
    reason: str


@dataclass(frozen=True)
class Note:
    """An event for the timeline (``railyard.timeline`` lists the kinds and fields)."""

    kind: str
    t: float
    end: float | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    source: Source = "controller"

    def event(self) -> Event:
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
