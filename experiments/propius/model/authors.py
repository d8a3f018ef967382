"""The authors' ten-job runs of 6,000 to 10,000 clients, as far as their inputs are known.

Known, from the authors' public code and results at commit 73807cc: the jobs, their arrivals, order and timers
(``experiments.propius.data.jobs.TEN_JOBS``), the client's cycle of check-ins, the flat server, the number of
client managers (2), and that the scheduler read the store of the first one. Their clock ran three times as fast as
the time they report, but the waits between two polls did not, so those are three times as long in reported time
(``TIMERS``).

Not known: how many of the clients were switched on at a time (their clients follow a trace of availability that is not
public as text), how speed and attributes of a device belong together, and how large the clients' private data are. The
first two are fitted, each to one kind of number: ``ONLINE_SHARE`` to the job completion time of ``fifo`` with 6,000
clients, ``SPEED_BY_RANK`` to the response times of jobs with 10,000 clients, by the share of the clients that fit
(``propius-response-by-group`` of ``measure.published``).
The third is an assumption of ``experiments.propius.data.clients``.
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

ONLINE_SHARE = 0.24
SPEED_BY_RANK = 0.45
FAST_CLOCK = 3.0
TIMERS = DeviceTimers(ask_again_s=2 * FAST_CLOCK, pause_s=20.0, refused_s=2 * FAST_CLOCK, poll_s=3 * FAST_CLOCK)
MANAGERS = 2


class Means(NamedTuple):
    """Means over the authors' ten jobs, in seconds; scheduling delay over all attempts."""

    jct_s: float
    scheduling_attempt_s: float
    response_s: float


def _means(clients: int) -> dict[tuple[int, str], Means]:
    """The authors' means with ``clients`` clients, by clients and policy."""
    jct, scheduling, response = (published(f"propius-{name}-{clients}").values for name in _NAMES)
    return {(clients, policy): Means(jct[policy], scheduling[policy], response[policy]) for policy in jct}


_NAMES = ("jct", "scheduling", "response")
_CLIENTS = (6_000, 10_000)
AUTHORS = dict(each for clients in _CLIENTS for each in _means(clients).items())
"""What the authors measured, by clients and policy."""


def authors_run(
    policy: str,
    clients: int,
    seed: int,
    *,
    jobs: Sequence[EdgeJob] = TEN_JOBS,
    online_share: float = ONLINE_SHARE,
    speed_by_rank: float = SPEED_BY_RANK,
    until_s: float = 400_000.0,
) -> VirtualRun:
    """The run of ``clients`` clients, a share of which is switched on all the time."""
    online = drawn(round(clients * online_share), seed)
    return VirtualRun(
        jobs,
        faster_by_rank(online, speed_by_rank, seed),
        policy,
        seed,
        managers=MANAGERS,
        sees="first",
        timers=TIMERS,
        until_s=until_s,
    )


def faster_by_rank(clients: Sequence[ClientProfile], correlation: float, seed: int) -> list[ClientProfile]:
    """The clients with their speeds dealt out anew, so that those of high attributes tend to be fast.

    ``correlation`` is that of normal scores of rank and speed: 0 for independent ones, 1 for a strict order.
    """
    chance, normal = random.Random(f"speed {seed}"), NormalDist()
    scores = {}
    for place, client in enumerate(sorted(clients, key=lambda client: client.attributes)):
        rank = normal.inv_cdf((place + 0.5) / len(clients))
        scores[client.number] = correlation * rank + sqrt(1 - correlation**2) * chance.gauss(0, 1)
    fastest = sorted((client.speed_ms for client in clients), reverse=True)
    dealt = dict(zip(sorted(scores, key=scores.__getitem__), fastest, strict=True))
    return [replace(client, speed_ms=dealt[client.number]) for client in clients]
