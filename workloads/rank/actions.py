"""What a rank has to do now, as values: the actions of ``workloads.rank.machine.RankMachine``."""

from __future__ import annotations

from dataclasses import dataclass

from railyard.timeline import Event
from workloads.rank.exchange import MessagePart
from workloads.rank.executor import ReleaseCircuits, RequestCircuits, StepEnded
from workloads.rank.flows import FlowKey
from workloads.rank.in_flight import InFlight
from workloads.rank.paths import PeerKey
from workloads.rank.roll_call import Tell
from workloads.rank.slot_sender import Moved


@dataclass(slots=True)
class RunCompute:
    """Action: occupy the accelerator until ``due``, then call ``compute_done``."""

    due: float


@dataclass(slots=True)
class RoundPause:
    """Action: call ``paused`` after ``seconds`` from ``since`` on (None: from now on); then ``part`` may go or come."""

    in_flight: InFlight
    part: MessagePart
    seconds: float
    since: float | None = None


@dataclass(slots=True)
class SendPart:
    """Action: send ``part`` of ``in_flight`` by ``path``; its circuit is up, or its receiver takes it.

    ``acknowledged``: somebody may wait until its receiver has acknowledged it, so the kernel should tell when.
    ``since``: time at which it became possible, which is in the past where this machine is late (None: now).
    """

    in_flight: InFlight
    part: MessagePart
    path: PeerKey
    acknowledged: bool = True
    since: float | None = None


@dataclass(slots=True)
class Announce:
    """Action: tell the rank at the other end of ``path`` that this rank takes all rounds up to ``last_round`` by it.

    ``not_before`` is the time from which on that holds, which may be in the past where this machine is late (0: at
    once). The message is a receiver credit.
    """

    in_flight: InFlight
    path: PeerKey
    last_round: int
    not_before: float = 0.0

    @property
    def flow(self) -> FlowKey:
        return self.in_flight.key


@dataclass(slots=True)
class OpenPath:
    """Action: open ``path`` if this rank has to do that: something will come by it."""

    path: PeerKey


@dataclass(slots=True)
class Drain:
    """Action: all parts of ``in_flight`` are here or were taken; call ``close`` and ``over`` when none is in flight.

    For the send of an eager program, call ``buffered`` first: the rank goes on at once.
    """

    in_flight: InFlight


Message = RequestCircuits | ReleaseCircuits | Moved
"""A message to the controller."""
Action = SendPart | Announce | Tell | OpenPath | RoundPause | Drain | RunCompute | StepEnded | Message | Event
"""An action of a rank, or an event for the timeline."""
