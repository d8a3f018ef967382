"""The clients of a run: who they are, whether the jobs can be served by them, and what each does as a state machine.

A client's rank, from 0 to 1, gives all its public attributes, so bounds that grow together are nested. The authors'
traces are not public as text; shares and quantiles here are those that they published or that their code implies:
rank 0.25 just meets the bounds that 75 % of their clients meet, and so on. Each method of a ``Device`` takes what
happened and returns what the device does next.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log
from statistics import NormalDist
from typing import Literal

from experiments.propius.data.jobs import Attributes, EdgeJob
from measure.published import published
from railyard.errors import ConfigError
from topos.client_rates import client_rates, rate_at

BATCH = 20
STEPS = 20
TRAIN_PASSES = 3
"""Forward and backward together cost three times the forward pass whose time ``speed_ms`` is."""

ATTRIBUTES_AT = (
    (0.0, (1.0, 1.0, 200.0, 2.0)),
    (0.25, (3.0, 2.0, 400.0, 4.0)),
    (0.5, (6.0, 4.0, 800.0, 6.0)),
    (0.605, (7.0, 6.0, 900.0, 7.0)),
    (0.75, (9.0, 6.0, 1200.0, 8.0)),
    (1.0, (14.0, 12.0, 2400.0, 12.0)),
)
"""Attributes by rank, linear in between; the ends are ours."""

SPEED_MS_AT = ((0.0, 13.4), (0.25, 29.0), (0.5, 63.0), (0.75, 109.0), (1.0, 189.0))
"""Milliseconds per sample by quantile, logarithms linear in between; the ends continue the nearest slope."""

_SAMPLES = published("leaf-samples").values
PRIVATE_SIZE = NormalDist(_SAMPLES["mean"], _SAMPLES["deviation"])
"""Samples of a client: mean and deviation of FEMNIST's users (LEAF, arXiv 1812.01097), which the authors train on."""
LEAST_PRIVATE_SIZE = 20.0


@dataclass(frozen=True)
class ClientProfile:
    """One client: ``speed_ms`` is its milliseconds per sample, ``rate_mbps`` its access link in Mb/s both ways.

    ``private_size`` is the size of its own data, which no server learns. ``region`` counts from 0.
    """

    number: int
    region: int
    attributes: Attributes
    private_size: float
    speed_ms: float
    rate_mbps: float

    def train_s(self, batch: int = BATCH, steps: int = STEPS) -> float:
        """Real seconds of local training in one round: 3 × batch × steps × time per sample."""
        return TRAIN_PASSES * batch * steps * self.speed_ms / 1000


def stratified(count: int, regions: int, seed: int) -> list[ClientProfile]:
    """``count`` clients whose values are quantiles, so that each seed has the same shares of eligible clients.

    Client i is in region i % ``regions`` and has the rate of ``topos.client_rates``. The seed decides which clients of
    a region have which rank, private size and speed. Each run of ``regions`` neighbouring ranks has one client in each
    region, and private sizes and speeds are spread over the ranks evenly.
    """
    chance = random.Random(f"population {seed}")
    slots = [list(range(region, count, regions)) for region in range(regions)]
    for slot in slots:
        chance.shuffle(slot)
    by_rank: list[int] = []
    for row in range(-(-count // regions)):
        clients = [slot[row] for slot in slots if row < len(slot)]
        by_rank += chance.sample(clients, len(clients))
    rates = client_rates(count, regions)
    private, speed = chance.random(), chance.random()
    found = []
    for place, number in enumerate(by_rank):
        rank = (place + 0.5) / count
        sizes, speeds = (private + place * 0.7548776662) % 1, (speed + place * 0.5698402910) % 1
        found.append(_profile(number, number % regions, rank, sizes, speeds, rates[number]))
    return sorted(found, key=lambda profile: profile.number)


def drawn(count: int, seed: int, regions: int = 1) -> list[ClientProfile]:
    """``count`` clients drawn independently from the same distributions: for the authors' sizes."""
    chance = random.Random(f"population {seed}")
    return [
        _profile(number, number % regions, chance.random(), chance.random(), chance.random(), rate_at(chance.random()))
        for number in range(count)
    ]


def _profile(number: int, region: int, rank: float, sizes: float, speeds: float, rate_mbps: float) -> ClientProfile:
    speed_ms = exp(_between([(share, log(value)) for share, value in SPEED_MS_AT], speeds))
    cpu_f, ram, fp16_mem, os = (_between([(share, at[i]) for share, at in ATTRIBUTES_AT], rank) for i in range(4))
    private = max(LEAST_PRIVATE_SIZE, PRIVATE_SIZE.inv_cdf(min(max(sizes, 1e-6), 1 - 1e-6)))
    return ClientProfile(number, region, Attributes(cpu_f, ram, fp16_mem, os, speed_ms), private, speed_ms, rate_mbps)


def _between(points: Sequence[tuple[float, float]], share: float) -> float:
    for (low, first), (high, last) in pairwise(points):
        if share < high:
            return first + (share - low) / (high - low) * (last - first)
    return points[-1][1]


def check_run(jobs: Sequence[EdgeJob], clients: Sequence[ClientProfile]) -> None:
    """``ConfigError`` for jobs that ``clients`` could never serve."""
    for job in jobs:
        _check_demand(job, clients)


def _check_demand(job: EdgeJob, clients: Sequence[ClientProfile]) -> None:
    key, known = f"{job.name}.demand", len(clients)
    if job.demand > known:
        raise ConfigError(f"a round needs {job.demand} clients, but there are {known}; ask for fewer", key=key)
    public = [client for client in clients if client.attributes.meets(job.bounds)]
    if not public:
        bounds = ", ".join(
            f"{name} >= {least:g} by {_share(index, least, clients):.1%}"
            for index, (name, least) in enumerate(zip(Attributes._fields[:4], job.bounds, strict=False))
        )
        raise ConfigError(f"no client meets all bounds: {bounds}; lower them", key=f"{job.name}.bounds")
    eligible = sum(client.private_size >= job.private_bound for client in public)
    if job.demand > eligible:
        raise ConfigError(
            f"a round needs {job.demand} clients, but {eligible} of {known} may serve it ({len(public) / known:.1%} "
            f"meet the bounds, {eligible / known:.1%} have private data of at least {job.private_bound:g} besides); "
            "ask for fewer or lower the bounds",
            key=key,
        )


def _share(index: int, least: float, clients: Sequence[ClientProfile]) -> float:
    return sum(client.attributes[index] >= least for client in clients) / len(clients)


@dataclass(frozen=True)
class AskForJobs:
    """Send CHECKIN with the public attributes to the client manager; the answer goes to ``Device.offered``."""


@dataclass(frozen=True)
class Accept:
    """Send ACCEPT of a job; the answer goes to ``Device.accepted`` or ``Device.refused``."""

    job: int


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
class Pause:
    """Do nothing for so many seconds of the run; then ``Device.woke``."""

    seconds: float


@dataclass(frozen=True)
class Rest:
    """Go on with the next action after so many seconds of the run; nothing is answered."""

    seconds: float


Action = AskForJobs | Accept | Get | Train | Push | Pause | Rest
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
    most ``polls`` times. After its download, its training and its upload it rests for ``rest_s``.
    """

    ask_again_s: float = 2.0
    asks: int = 5
    pause_s: float = 20.0
    refused_s: float = 2.0
    poll_s: float = 3.0
    polls: int = 50
    rest_s: float = 0.0

    def scaled(self, time: float) -> DeviceTimers:
        return replace(self, **{name: wait * time for name, wait in vars(self).items() if name.endswith("_s")})


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

    def start(self) -> tuple[Action, ...]:
        """The device is switched on; it checks in at a random moment of the first ``ask_again_s`` seconds."""
        return (Pause(random.Random(self._seed).uniform(0, self.timers.ask_again_s)),)

    def offered(self, offers: Sequence[Offer]) -> tuple[Action, ...]:
        """The answer to CHECKIN: the client takes the first offer whose private bound it meets."""
        for offer in offers:
            if offer.private_bound <= self.profile.private_size and self.assigned in (None, offer.name):
                return (Accept(offer.job),)
        return (self._wait(self.timers.ask_again_s),)

    def accepted(self, binding: Binding) -> tuple[Action, ...]:
        self.binding = binding
        self._asked = self._polled = 0
        return self._get()

    def refused(self) -> tuple[Action, ...]:
        """ACCEPT was refused, since the round has all its clients or has ended."""
        return (self._wait(self.timers.refused_s) if self.timers.asks else Pause(self.timers.refused_s),)

    def absent(self) -> tuple[Action, ...]:
        """The server has no model of the round yet."""
        if self._polled >= self.timers.polls:
            return self.failed()
        self._polled += 1
        self._fetching = True
        return (Pause(self.timers.poll_s),)

    def got(self) -> tuple[Action, ...]:
        return self._rested(Train(self.train_s))

    def trained(self) -> tuple[Action, ...]:
        assert self.binding is not None, "only a bound client trains"
        return self._rested(Push(self.binding.job, self.binding.round))

    def pushed(self, outcome: Outcome) -> tuple[Action, ...]:
        """The upload has ended, however: the client is free again."""
        self.binding = None
        return self._rested(AskForJobs())

    def failed(self) -> tuple[Action, ...]:
        """A server did not answer, or answered with an error: the client gives up its work and pauses."""
        self.binding = None
        self._asked = 0
        self._fetching = False
        return (Pause(self.timers.pause_s),)

    def woke(self) -> tuple[Action, ...]:
        return self._get() if self._fetching else (AskForJobs(),)

    def _get(self) -> tuple[Action, ...]:
        assert self.binding is not None, "only a bound client downloads"
        self._fetching = False
        return (Get(self.binding.job, self.binding.round),)

    def _rested(self, action: Action) -> tuple[Action, ...]:
        return (Rest(self.timers.rest_s), action) if self.timers.rest_s else (action,)

    def _wait(self, seconds: float) -> Pause:
        if self._asked < self.timers.asks:
            self._asked += 1
            return Pause(seconds)
        self._asked = 0
        return Pause(self.timers.pause_s)
