"""The authors' ten-job runs of 6,000 to 10,000 clients, as far as their inputs are known.

Known, from the authors' public code and results at commit 73807cc: the jobs, their arrivals, order and timers
(``experiments.propius.data.jobs.TEN_JOBS``), the client's cycle of check-ins, the flat server, the number of
client managers (2), and that the scheduler read the store of the first one. Their clock ran three times as fast as
the time they report, but the waits between two polls, and the 3 s for which a client rests after its download, its
training and its upload, did not, so those are three times as long in reported time (``TIMERS``).

Not known: how many of the clients were switched on at a time (their clients follow a trace of availability that is not
public as text), how fast those were, how speed and attributes of a device belong together, and how large the clients'
private data are. The first three are fitted, each to one kind of number: ``ONLINE_SHARE`` and ``PLENTIFUL_SHARE`` to
the job completion time of ``fifo`` with 6,000 and 10,000 clients, which are the first so many of their trace,
``SPEED_SHARE`` to the response time of ``fifo`` with 10,000, ``SPEED_BY_RANK`` to the response times of jobs with
10,000 clients by the share of the clients that fit (``propius-response-by-group`` of ``measure.published``). The last
is an assumption of ``experiments.propius.data.clients``.
All other numbers follow from these. A random order behaves as their results show only if it is drawn anew for each
client (``random-client``): with one draw for each job, a job at the front gets all its clients and no two jobs hold
back each other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

from experiments.propius.data.clients import ClientProfile, DeviceTimers, drawn
from experiments.propius.data.jobs import TEN_JOBS, EdgeJob
from experiments.propius.model.simulation import VirtualRun
from measure.published import published

ONLINE_SHARE = 0.25
PLENTIFUL_SHARE = 0.22
SPEED_BY_RANK = 0.45
SPEED_SHARE = 0.75
FAST_CLOCK = 3.0
TIMERS = DeviceTimers(
    ask_again_s=2 * FAST_CLOCK, pause_s=20.0, refused_s=2 * FAST_CLOCK, poll_s=3 * FAST_CLOCK, rest_s=3 * FAST_CLOCK
)
MANAGERS = 2


class Means(NamedTuple):
    """Means over the authors' ten jobs, in seconds; scheduling delay over all attempts."""

    jct_s: float
    scheduling_attempt_s: float
    response_s: float


def _means(clients: int) -> dict[tuple[int, str], Means]:
    jct, scheduling, response = (published(f"propius-{name}-{clients}").values for name in _NAMES)
    return {(clients, policy): Means(jct[policy], scheduling[policy], response[policy]) for policy in jct}


_NAMES = ("jct", "scheduling", "response")
PLENTIFUL = 10_000
_CLIENTS = (6_000, PLENTIFUL)
AUTHORS = dict(each for clients in _CLIENTS for each in _means(clients).items())
"""What the authors measured, by clients and policy."""


def ten_jobs(clients: int) -> tuple[EdgeJob, ...]:
    """The authors' ten jobs as they came in their runs with ``clients`` clients.

    With 10,000 the first and the fifth have each other's demand and timer: there the fifth waits longer for its clients
    than the 100 s after which a job of 50 gives up, and the first has response times that vary as those of 50 do.
    """
    if clients < PLENTIFUL:
        return TEN_JOBS
    others = {0: TEN_JOBS[4], 4: TEN_JOBS[0]}
    demands = [others.get(place, job) for place, job in enumerate(TEN_JOBS)]
    return tuple(
        replace(job, demand=other.demand, scheduling_s=other.scheduling_s)
        for job, other in zip(TEN_JOBS, demands, strict=True)
    )


def authors_run(
    policy: str,
    clients: int,
    seed: int,
    *,
    jobs: Sequence[EdgeJob] | None = None,
    online_share: float | None = None,
    speed_by_rank: float = SPEED_BY_RANK,
    until_s: float = 400_000.0,
) -> VirtualRun:
    """The run of ``clients`` clients, a share of which, by default the fitted one, is switched on all the time."""
    if online_share is None:
        online_share = ONLINE_SHARE if clients < PLENTIFUL else PLENTIFUL_SHARE
    online = drawn(round(clients * online_share), seed)
    return VirtualRun(
        ten_jobs(clients) if jobs is None else jobs,
        faster_by_rank(online, speed_by_rank, seed, SPEED_SHARE),
        policy,
        seed,
        managers=MANAGERS,
        sees="first",
        timers=TIMERS,
        until_s=until_s,
    )


def faster_by_rank(
    clients: Sequence[ClientProfile], correlation: float, seed: int, share: float = 1.0
) -> list[ClientProfile]:
    """The clients with ``share`` of their times per sample, dealt out anew: those of high attributes tend to be fast.

    ``correlation`` is that of normal scores of rank and speed: 0 for independent ones, 1 for a strict order.
    """
    chance, normal = random.Random(f"speed {seed}"), NormalDist()
    scores = {}
    for place, client in enumerate(sorted(clients, key=lambda client: client.attributes)):
        rank = normal.inv_cdf((place + 0.5) / len(clients))
        scores[client.number] = correlation * rank + sqrt(1 - correlation**2) * chance.gauss(0, 1)
    fastest = sorted((client.speed_ms * share for client in clients), reverse=True)
    dealt = dict(zip(sorted(scores, key=scores.__getitem__), fastest, strict=True))
    return [
        replace(client, speed_ms=speed_ms, attributes=client.attributes._replace(speed_ms=speed_ms))
        for client in clients
        for speed_ms in [dealt[client.number]]
    ]
