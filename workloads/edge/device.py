"""A client device as a state machine: each method takes what happened and returns what the device does next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from workloads.edge.population import ClientProfile


@dataclass(frozen=True)
class CheckIn:
    """Send CHECKIN with the public attributes to the client manager; the answer goes to ``Device.offered``."""


@dataclass(frozen=True)
class Accept:
    """Send ACCEPT of a job; the answer goes to ``Device.accepted`` or ``Device.refused``."""

    job: int


@dataclass(frozen=True)
class Nack:
    """Tell the client manager that no offer fits; no answer is awaited."""

    jobs: tuple[int, ...]


@dataclass(frozen=True)
class Get:
    """Download the model of a round; then ``Device.got``."""

    job: int
    round: int


@dataclass(frozen=True)
class Train:
    """Compute for so many seconds of the run; then ``Device.trained``."""

    seconds: float


@dataclass(frozen=True)
class Push:
    """Upload the update of a round; then ``Device.pushed``."""

    job: int
    round: int


@dataclass(frozen=True)
class Wait:
    """Do nothing for so many seconds of the run; then ``Device.woke``."""

    seconds: float


Action = CheckIn | Accept | Nack | Get | Train | Push | Wait
Outcome = Literal["acknowledged", "late", "lost", "refused"]


@dataclass(frozen=True)
class Offer:
    """One job that a client manager offers; ``private_bound`` is for the client to check."""

    job: int
    private_bound: float


@dataclass(frozen=True)
class Binding:
    """A client (id of the control plane) is one of those that serve attempt ``attempt`` of a job's round."""

    client: int
    job: int
    round: int
    attempt: int = 0


@dataclass(frozen=True)
class DeviceTimers:
    """The timers of a client in real seconds; ``scaled`` gives those of an emulated run."""

    ask_again_s: float = 2.0
    asks: int = 5
    pause_s: float = 20.0

    def scaled(self, time: float) -> DeviceTimers:
        """The same timers for a run of ``time`` emulated seconds per real second."""
        return DeviceTimers(self.ask_again_s * time, self.asks, self.pause_s * time)


class Device:
    """One client. ``train_s`` is the length of a round's training in seconds of the run (already scaled)."""

    def __init__(
        self, profile: ClientProfile, timers: DeviceTimers, seed: int, *, train_s: float | None = None
    ) -> None:
        raise NotImplementedError

    def start(self, now: float) -> tuple[Action, ...]:
        """The device is switched on."""
        raise NotImplementedError

    def offered(self, offers: Sequence[Offer], now: float) -> tuple[Action, ...]:
        """The answer to CHECKIN."""
        raise NotImplementedError

    def accepted(self, binding: Binding, now: float) -> tuple[Action, ...]:
        """ACCEPT was granted."""
        raise NotImplementedError

    def refused(self, now: float) -> tuple[Action, ...]:
        """ACCEPT was refused, since the round has all its clients or has ended."""
        raise NotImplementedError

    def got(self, now: float) -> tuple[Action, ...]:
        """The model has arrived."""
        raise NotImplementedError

    def trained(self, now: float) -> tuple[Action, ...]:
        """The training has ended."""
        raise NotImplementedError

    def pushed(self, outcome: Outcome, now: float) -> tuple[Action, ...]:
        """The upload has ended."""
        raise NotImplementedError

    def failed(self, now: float) -> tuple[Action, ...]:
        """A server did not answer, or answered with an error: the device gives up its work and pauses."""
        raise NotImplementedError

    def woke(self, now: float) -> tuple[Action, ...]:
        """A wait has ended."""
        raise NotImplementedError
