"""A run with faults whose every time is known: two jobs on one fabric, written as events.

Job A (ranks 0 to 3) steps every ``STEP`` s from 10.0 on; chip 1 dies in its fifth step; chip 12 stands in; the job goes
on from step 3. Job B (ranks 8 and 9) steps every second all along, and slower once A uses its links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from synthetic_job import counters

from railyard.timeline import Event
from topos.plan import FabricPlan

STEP, SLOW_STEP = 2.0, 4.0
GRADIENTS = 1_000_000
DETECT, DECIDE, REWIRE, LAUNCH, CHECKPOINT, LIBRARY, REST = 0.6, 0.01, 0.05, 0.2, 1.5, 3.4, 0.1
FAULT = 10.0 + 4 * STEP + 1.1
FAILED = FAULT + DETECT
REPLACED = FAILED + DECIDE
LIT = REPLACED + REWIRE
SECOND_LAUNCH = LIT + LAUNCH
FORKED = 0.05
RESUMED = SECOND_LAUNCH + FORKED + CHECKPOINT + LIBRARY + REST


class Run:
    """Writes events; times in wall-clock seconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, t: float, source: Any, kind: str, end: float | None = None, **fields: Any) -> None:
        self.events.append(Event(t, source, kind, end, fields))

    def launch(self, t: float, job: str, incarnation: int, members: Sequence[int]) -> None:
        self.add(t, "run", "launch", job=job, incarnation=incarnation, members=list(members))

    def step(
        self,
        t: float,
        seconds: float,
        members: Sequence[int],
        step: int,
        group: str,
        incarnation: int = 0,
        size: int = GRADIENTS,
    ) -> float:
        """One step of all members: compute for half of it, then an all-reduce; its end."""
        half, end = t + seconds / 2, t + seconds
        sent = size * 2 * (len(members) - 1) // len(members)
        for place, rank in enumerate(members):
            self.add(t, "agent", "compute", half, rank=rank, step=step, op=0, name="compute", late_s=0.0002)
            self.add(half, "agent", "communicate", end, rank=rank, step=step, op=1, name="gradients",
                     group=group, dimension="world", op_kind="all_reduce", bytes=size, sent_bytes=sent, phase=0,
                     posted=half)  # fmt: skip
            self.add(half, "agent", "transfer", end, rank=rank, step=step, op=1, transfer=place, round=0, chunk=0,
                     peer=members[place - 1], bytes=sent, reduce=True)  # fmt: skip
            self.add(t, "agent", "step", end, rank=rank, step=step)
            self.add(end, "agent", "state", rank=rank, step=step, incarnation=incarnation, checksum=1000 + step)
        return end

    def steps(
        self, t: float, seconds: float, members: Sequence[int], numbers: range, group: str, incarnation: int = 0
    ) -> float:
        for step in numbers:
            t = self.step(t, seconds, members, step, group, incarnation)
        return t

    def sampled(self, start: float, end: float, plan: FabricPlan, ranks: Sequence[int], every: float = 0.2) -> Run:
        """Processor and counters, with nothing dropped."""
        t = start
        self.events += counters(plan, start, 0, "ovs") + counters(plan, end, 9, "ovs")
        ports = [port for switch in plan.switches for port in switch.ports if port.rank in ranks]
        while t <= end:
            self.add(
                t, "link", "cpu", t + every, busy=0.4, steal=0.0, other=0.0, switch_busy=0.5, switch_thread=0.5, cores=2
            )
            for port in ports:
                names: dict[str, Any] = {"interface": port.interface, "rank": port.rank, "lane": port.lane}
                self.add(t, "link", "bytes", **names, tx_bytes=0, rx_bytes=0, dropped=0)
            t += every
        return self

    def timeline(self) -> list[Event]:
        return sorted(self.events, key=lambda e: e.t)


def struck(
    run: Run | None = None,
    *,
    neighbour: bool = True,
    after: float = STEP,
    replaced: bool = True,
    neighbour_after: float = 1.5,
) -> Run:
    """The run of the module's docstring; ``after`` is A's step time on the spare, ``replaced`` whether there is one.

    ``neighbour_after`` is B's step time from then on.
    """
    run = run or Run()
    first, second = (0, 1, 2, 3), (0, 12, 2, 3)
    run.launch(9.0, "A", 0, first)
    t = run.steps(10.0, STEP, first, range(4), "A")
    for rank in (0, 2, 3):  # the fifth step was under way
        run.add(t, "agent", "compute", t + STEP / 2, rank=rank, step=4, op=0, name="compute", late_s=0.0)
    run.add(FAULT, "run", "fault", job="A", rank=1, what="links cut, agent ended")
    run.add(FAILED, "controller", "failed", job="A", rank=1, cause="silent", heard=FAULT - 0.1)
    if replaced:
        run.add(REPLACED, "controller", "replaced", LIT, job="A", number=1, dead=[1], replacements=[[1, 12]],
                ports=[1, 2], kept=[])  # fmt: skip
        restart(run, second, after)
    else:
        run.add(REPLACED, "controller", "stranded", job="A", number=1, dead=[1], reason="no spare is left")
    if neighbour:
        run.launch(9.1, "B", 0, (8, 9))
        t = 10.0
        step = 0
        while t < RESUMED + 8 * after:
            t = run.step(t, neighbour_after if t >= RESUMED else 1.0, (8, 9), step, "B")
            step += 1
    return run


def restart(run: Run, members: Sequence[int], seconds: float, first: int = 3, last: int = 8) -> None:
    run.launch(SECOND_LAUNCH, "A", 1, members)
    t = SECOND_LAUNCH + FORKED
    run.add(t, "agent", "stage", t + CHECKPOINT, rank=12, incarnation=1, name="checkpoint", given=False)
    for rank in members:
        run.add(
            t + CHECKPOINT,
            "agent",
            "stage",
            t + CHECKPOINT + LIBRARY,
            rank=rank,
            incarnation=1,
            name="library",
            given=True,
        )
    run.steps(RESUMED, seconds, members, range(first, last), "A", 1)
