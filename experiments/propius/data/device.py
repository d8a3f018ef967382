"""A client device as a state machine: each method takes what happened and returns what the device does next."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from experiments.propius.data.population import ClientProfile


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
    """One job that a client manager offers, by number and name; ``private_bound`` is for the client to check."""

    job: int
    private_bound: float
    name: str = ""


@dataclass(frozen=True)
class Binding:
    """A client (id of the control plane) is one of those that serve attempt ``attempt`` of a job's round."""

    client: int
    job: int
    round: int
    attempt: int = 0


@dataclass(frozen=True)
class DeviceTimers:
    """The timers of a client in real seconds; ``scaled`` gives those of an emulated run.

    Without an offer that fits, a client asks again after ``ask_again_s``, at most ``asks`` times, and then pauses for
    ``pause_s``. A refused ACCEPT counts as no offer, and the client asks again after ``refused_s``; with ``asks`` of 0
    it does so each time. If the model of its round is not there yet, a client asks for it again after ``poll_s``, at
    most ``polls`` times.
    """

    ask_again_s: float = 2.0
    asks: int = 5
    pause_s: float = 20.0
    refused_s: float = 2.0
    poll_s: float = 3.0
    polls: int = 50

    def scaled(self, time: float) -> DeviceTimers:
        """The same timers for a run of ``time`` emulated seconds per real second."""
        return replace(
            self,
            ask_again_s=self.ask_again_s * time,
            pause_s=self.pause_s * time,
            refused_s=self.refused_s * time,
            poll_s=self.poll_s * time,
        )


class Device:
    """One client, which serves one job at a time.

    ``train_s`` is the length of a round's training in seconds of the run, by default ``profile.train_s()``.
    ``assigned`` names the only job that a client of a fixed partition serves; None for any. ``binding`` is what the
    client works on, None if nothing.
    """

    def __init__(
        self,
        profile: ClientProfile,
        timers: DeviceTimers,
        seed: int,
        *,
        train_s: float | None = None,
        assigned: str | None = None,
    ) -> None:
        self.profile = profile
        self.timers = timers
        self.train_s = profile.train_s() if train_s is None else train_s
        self.assigned = assigned
        self.binding: Binding | None = None
        self._seed = f"device {seed} {profile.number}"
        self._asked = 0
        self._polled = 0
        self._fetching = False

    def start(self, now: float) -> tuple[Action, ...]:
        """The device is switched on; it checks in at a random moment of the first ``ask_again_s`` seconds."""
        return (Wait(random.Random(self._seed).uniform(0, self.timers.ask_again_s)),)

    def offered(self, offers: Sequence[Offer], now: float) -> tuple[Action, ...]:
        """The answer to CHECKIN: the client takes the first offer whose private bound it meets."""
        for offer in offers:
            if offer.private_bound <= self.profile.private_size and self.assigned in (None, offer.name):
                return (Accept(offer.job),)
        wait = self._wait(self.timers.ask_again_s)
        return (Nack(tuple(offer.job for offer in offers)), wait) if offers else (wait,)

    def accepted(self, binding: Binding, now: float) -> tuple[Action, ...]:
        """ACCEPT was granted."""
        self.binding = binding
        self._asked = self._polled = 0
        return self._get()

    def refused(self, now: float) -> tuple[Action, ...]:
        """ACCEPT was refused, since the round has all its clients or has ended."""
        return (self._wait(self.timers.refused_s) if self.timers.asks else Wait(self.timers.refused_s),)

    def absent(self, now: float) -> tuple[Action, ...]:
        """The server has no model of the round yet."""
        if self._polled >= self.timers.polls:
            return self.failed(now)
        self._polled += 1
        self._fetching = True
        return (Wait(self.timers.poll_s),)

    def got(self, now: float) -> tuple[Action, ...]:
        """The model has arrived."""
        return (Train(self.train_s),)

    def trained(self, now: float) -> tuple[Action, ...]:
        """The training has ended."""
        assert self.binding is not None, "only a bound client trains"
        return (Push(self.binding.job, self.binding.round),)

    def pushed(self, outcome: Outcome, now: float) -> tuple[Action, ...]:
        """The upload has ended, however: the client is free again."""
        self.binding = None
        return (CheckIn(),)

    def failed(self, now: float) -> tuple[Action, ...]:
        """A server did not answer, or answered with an error: the client gives up its work and pauses."""
        self.binding = None
        self._asked = 0
        self._fetching = False
        return (Wait(self.timers.pause_s),)

    def woke(self, now: float) -> tuple[Action, ...]:
        """A wait has ended."""
        return self._get() if self._fetching else (CheckIn(),)

    def _get(self) -> tuple[Action, ...]:
        assert self.binding is not None, "only a bound client downloads"
        self._fetching = False
        return (Get(self.binding.job, self.binding.round),)

    def _wait(self, seconds: float) -> Wait:
        if self._asked < self.timers.asks:
            self._asked += 1
            return Wait(seconds)
        self._asked = 0
        return Wait(self.timers.pause_s)
