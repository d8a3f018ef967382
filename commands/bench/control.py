"""Benchmarks of the control plane: rewiring a 64-port optical switch, and the readiness barrier of 64 members.

Both use the whole control path of a run: job channel, engine, OpenFlow to a real Open vSwitch and its barrier reply.
Needs root.

A rewiring has two ends. The switch sends its barrier reply when its tables are changed. The controller answers the
request when the caches of Open vSwitch have followed as well, so that packets take the new circuits. The controller
cannot see the caches, so it waits (``controllers.openflow.datapaths``); not where the kernel forwards.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from statistics import median

from commands.bench import Measurement, NotMeasured
from commands.bench.bed import Bed
from controllers.engine.jobs import Job
from controllers.northbound.client import ChannelClient
from controllers.openflow.datapaths import OPEN_VSWITCH
from railyard.errors import ControlError
from railyard.loop import READ, Poller
from railyard.timeline import read_events
from workloads.agent.job_channel import JobChannel
from workloads.program import Group

REWIRE_LIMIT_S = 0.004
"""Largest median time from the request to the barrier reply, in seconds."""
ANSWER_LIMITS_S = REWIRE_LIMIT_S, REWIRE_LIMIT_S + OPEN_VSWITCH.settle_s + OPEN_VSWITCH.revalidation_s
"""Largest median time from the request to the answer, in seconds, if one rewiring follows the other, with bpf (there
are no caches to wait for) and with other datapaths."""
QUIET_ANSWER_LIMITS_S = REWIRE_LIMIT_S + 0.002, REWIRE_LIMIT_S + OPEN_VSWITCH.settle_s + 0.002
"""The same after ``QUIET_S`` without a change; processes that have slept so long need up to two milliseconds more."""
QUIET_S = 0.05
BARRIER_LIMITS_S = 0.003, 0.015
REWIRES = 60
QUIET_REWIRES = 30
BARRIERS = 60
MEMBERS = PORTS = 64
_PATIENCE_S = 10.0


def rewire_64(bed: Bed) -> list[Measurement]:
    """Seconds from request to barrier reply, and to answer, when all circuits of a 64-port switch are replaced.

    The reconfiguration delay is 0. ``NotMeasured`` if the controller's events lack rewirings.
    """
    with (
        bed.controlled(servers=32, ports=2) as (_, controller),
        ChannelClient(controller.files.channel) as client,
    ):
        asked, answered = zip(*(timed_rewire(client, PORTS, shift) for shift in range(REWIRES)), strict=True)
        rested = []
        for shift in range(REWIRES, REWIRES + QUIET_REWIRES):
            time.sleep(QUIET_S)
            began, ended = timed_rewire(client, PORTS, shift)
            rested.append(ended - began)
        replied = _barrier_replies(controller.files.events)[:REWIRES]
    if len(replied) < REWIRES:
        raise NotMeasured(f"the controller noted {len(replied)} of {REWIRES} rewirings; its log says why")
    barrier = [reply - began for began, reply in zip(asked, replied, strict=True)]
    answer = [end - began for began, end in zip(asked, answered, strict=True)]
    return [
        *_verdict(bed, "rewire_64_barrier", barrier, (REWIRE_LIMIT_S, REWIRE_LIMIT_S)),
        *_verdict(bed, "rewire_64_answer", answer, ANSWER_LIMITS_S),
        *_verdict(bed, "rewire_64_answer_after_quiet", rested, QUIET_ANSWER_LIMITS_S),
    ]


def barrier_64(bed: Bed) -> list[Measurement]:
    """Seconds from first request to last ack when 64 members, each with a connection, request a ring that is up."""
    group = Group("ring", "dp", tuple(range(MEMBERS)))
    with (
        bed.controlled(servers=MEMBERS, ports=2) as (_, controller),
        ChannelClient(controller.files.channel) as client,
    ):
        client.register(Job("barrier", (group,), "on-demand"), "opus")
        took = _barriers(controller.files.channel, group.name)
        client.finish("barrier")
    return _verdict(bed, "barrier_64", took, BARRIER_LIMITS_S)


def _verdict(bed: Bed, name: str, took: list[float], limits_s: tuple[float, float]) -> list[Measurement]:
    """The median of ``took`` with its limits in seconds, with bpf and with other datapaths, and the longest."""
    worst = Measurement(f"{name}_worst", max(took), "s")
    return [bed.at_most(f"{name}_median", median(took), "s", *limits_s), worst]


def matching(ports: int, shift: int) -> list[tuple[int, int]]:
    """A perfect matching of ``ports`` ports; those of even and odd ``shift`` share no circuit."""
    return [(port, port % ports + 1) for port in range(1 + shift % 2, ports + 1, 2)]


def timed_rewire(client: ChannelClient, ports: int, shift: int, delay_s: float = 0.0) -> tuple[float, float]:
    """Times of request and answer of a change to the matching of ``shift`` (monotonic seconds)."""
    began = time.monotonic()
    client.rewire("rail0", matching(ports, shift), "overwrite", delay_s=delay_s)
    return began, time.monotonic()


def _barrier_replies(events: Path) -> list[float]:
    """Times of the switch's barrier replies (monotonic seconds), one for each rewiring without delay."""
    return [event.end for event in read_events(events) if event.kind == "reconfigure" and event.end is not None]


def _barriers(channel: Path, group: str) -> list[float]:
    """Seconds of ``BARRIERS`` barriers one after another; this process sends the messages of all members."""
    members = [JobChannel(str(channel), "barrier", rank, _PATIENCE_S) for rank in range(MEMBERS)]
    try:
        with Poller() as poller:
            for member in members:
                poller.watch(member, READ)

            def all_say(op: str, **fields: object) -> float:
                began = time.monotonic()
                for member in members:
                    member.request(op, group=group, **fields)
                waiting = MEMBERS
                while waiting:
                    heard = poller.wait(math.inf, time.monotonic() + _PATIENCE_S)
                    if not heard:
                        raise NotMeasured(f"{waiting} of {MEMBERS} members got no answer to {op} "
                                          f"within {_PATIENCE_S:g} s")  # fmt: skip
                    waiting -= sum(len(member.receive()) for member, _ in heard)
                return time.monotonic() - began

            all_say("checkin")
            took = []
            for index in range(BARRIERS):
                took.append(all_say("request", index=index))
                all_say("release", index=index)
            return took
    except ControlError as error:
        raise NotMeasured(f"the barrier of {MEMBERS} members: {error}") from None
    finally:
        for member in members:
            member.close()
