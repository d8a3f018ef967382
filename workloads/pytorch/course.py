"""The course of one rank of a script: its calls, waits and steps, written down, paced and held against its record."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from railyard.digits import spans
from railyard.errors import AgentError, ConfigError
from workloads.pytorch.rail_client import RailClient
from workloads.pytorch.script_ranks import RecordedCall, ScriptRank
from workloads.pytorch.standstill import Awaited
from workloads.pytorch.trace import Call, StepEnd, TraceEvent, Wait, Work


class Pace:
    """The stretches of computing of the main thread, from ``go`` to ``stop``.

    ``compute``: "real" leaves them as they are; "scaled:X" holds the script until a stretch has lasted X times its
    processor time; "recorded" until it has lasted as long as in the record. Time in communication is in no stretch.
    """

    def __init__(self, compute: str) -> None:
        scaled = re.fullmatch(r"scaled:([0-9]+(?:\.[0-9]+)?)", compute)
        if scaled is None and compute not in ("real", "recorded"):
            raise ConfigError(f"must be real, recorded or scaled:X with a number X, not {compute!r}", key="compute")
        self._times = float(scaled[1]) if scaled else None
        self._recorded = compute == "recorded"
        self._clock = time.pthread_getcpuclockid(threading.main_thread().ident or 0)
        self._computed_s = 0.0
        """Wall-clock seconds of computing since the last call that the record holds."""
        self.held = False
        """Whether the script is held at all, as it is from the recorded step on."""
        self.report = {"wall_s": 0.0, "processor_s": 0.0, "late_s": 0.0}
        """Seconds of all stretches on the clock and of the processor, and those by which they were too long."""
        self.go()

    def go(self) -> None:
        """A stretch begins."""
        self._since, self._mark = time.monotonic(), time.clock_gettime(self._clock)

    def stop(self, recorded_s: float | None = None) -> float:
        """A stretch ends: hold the script until that is due; returns the stretch's processor seconds.

        ``recorded_s``: seconds of computing since the call before, in the record (None: this is none of its calls).
        """
        processor_s = time.clock_gettime(self._clock) - self._mark
        wall_s = time.monotonic() - self._since
        self.report["wall_s"] += wall_s
        self.report["processor_s"] += processor_s
        if self.held and self._times is not None:
            self._hold(self._times * processor_s - wall_s)
        elif self.held and self._recorded:
            self._computed_s += wall_s
            if recorded_s is not None:
                self._hold(recorded_s - self._computed_s)
                self._computed_s = 0.0
        return processor_s

    def _hold(self, left_s: float) -> None:
        time.sleep(max(0.0, left_s))
        self.report["late_s"] += max(0.0, -left_s)


@dataclass(eq=False)
class Asked:
    """A call that the script asked for: ``recorded`` is its number in the record (None: none of it)."""

    awaited: Awaited
    recorded: int | None
    on_rail: bool
    waited: bool = False


class Course:
    """The calls, waits and steps of ``rank``. ``write`` takes the events of its trace.

    From ``rank.setup_steps`` on its calls are those of the record, of which ``carrier`` takes those on a rail.
    """

    def __init__(
        self,
        rank: ScriptRank,
        write: Callable[[TraceEvent], object] = lambda _: None,
        carrier: RailClient | None = None,
        recorded: Sequence[RecordedCall] = (),
    ) -> None:
        self.rank, self.carrier, self._write = rank, carrier, write
        self.step = 0
        self.awaited: Awaited | None = None
        """The call that the script waits for now."""
        self.made: dict[str, int] = {}
        """Calls by channel (``Awaited.needs``)."""
        self.pace = Pace(rank.compute)
        self.pace.held = carrier is None
        self._recorded = tuple(row for row in recorded if row.kind != "end")
        self._end_s = next((row.seconds for row in recorded if row.kind == "end"), None)
        self._next = 0
        self._calls = 0
        self._passed: dict[int, bool] = {}
        """Calls of the record that gloo carries and that are not over."""

    @property
    def _by_record(self) -> bool:
        return self.carrier is not None and self.step >= self.rank.setup_steps

    def ask(self, call: Call, group: str) -> Asked:
        """The script asks for ``call`` in the group with that name."""
        number = self._match(call) if self._by_record else None
        row = None if number is None else self._recorded[number]
        seconds = self.pace.stop(None if row is None else row.seconds)
        self._write(replace(call, work=Work(round(seconds, 9))))
        ranks, channel, needs = call.ranks, group, group
        if call.peer is not None:
            ranks = (self.rank.rank, call.peer)
            way = ">".join(map(str, ranks if call.kind == "send" else ranks[::-1]))
            channel, needs = (
                f"{group} {kind} {way}" for kind in (call.kind, "recv" if call.kind == "send" else "send")
            )
        place = self.made[channel] = self.made.get(channel, 0) + 1
        awaited = Awaited(self._calls, call.kind, ranks, call.bytes, needs, place)
        self._calls += 1
        if number is not None and row is not None and not row.on_rail:
            self._pass(number)
        return Asked(awaited, number, row is not None and row.on_rail)

    def _match(self, call: Call) -> int | None:
        """The number in the record of ``call``; None if it is not there, and so small that gloo carries it.

        Calls of gloo that the record has before it, and this step has not, are left out.
        """
        pair = set() if call.peer is None else {self.rank.rank, call.peer}
        for number in range(self._next, len(self._recorded)):
            row = self._recorded[number]
            sizes_agree = call.bytes == row.bytes or call.kind == "all_to_all"
            if call.kind == row.kind and sizes_agree and set(row.ranks) in (set(call.ranks), pair):
                self._leave_out(number)
                self._next = number + 1
                return number
            if row.on_rail:
                break
        if call.bytes < self.rank.front_end_below:
            return None
        there = self._recorded[self._next : self._next + 1]
        raise AgentError(
            f"rank {self.rank.rank} asks for {_words(call)} as call {self._next} of step {self.step}; the record has "
            f"{_words(there[0]) if there else 'no more call'} there: record the script again, as it runs here"
        )

    def _leave_out(self, end: int) -> None:
        """The calls of the record up to number ``end`` are over, as far as the agent has to know."""
        for number in range(self._next, end):
            self._pass(number)
            self.over(number)

    def _pass(self, number: int) -> None:
        assert self.carrier is not None
        self._passed[number] = True
        self.carrier.passed(number)

    def over(self, number: int | None) -> None:
        """Gloo has done the call with that number in the record; may be said twice, and from any thread."""
        if number is None or self._passed.pop(number, None) is None or self.carrier is None:
            return  # it was said before, perhaps at the same time
        self.carrier.over(number)

    @contextmanager
    def waiting(self, asked: Asked) -> Iterator[None]:
        """Within it the script waits for a call to be over."""
        seconds = self.pace.stop()
        if not asked.waited:
            asked.waited = True
            self._write(Wait(self.step, asked.awaited.number, Work(round(seconds, 9))))
        with self._awaiting(asked.awaited):
            yield
        if not asked.on_rail:
            self.over(asked.recorded)

    @contextmanager
    def making_group(self, maker: str) -> Iterator[None]:
        """Within it the script waits until all ranks of the job make a group."""
        place = self.made["groups"] = self.made.get("groups", 0) + 1
        with self._awaiting(Awaited(-1, maker, tuple(range(self.rank.world)), 0, "groups", place)):
            yield

    @contextmanager
    def _awaiting(self, awaited: Awaited) -> Iterator[None]:
        self.awaited = awaited
        try:
            yield
        finally:
            self.awaited = None
            self.pace.go()

    def stepped(self) -> None:
        seconds = self.pace.stop(self._end_s if self._by_record else None)
        self._write(StepEnd(self.step, Work(round(seconds, 9))))
        if self.carrier is not None and self._by_record:
            left = [row for row in self._recorded[self._next :] if row.on_rail]
            if left:
                raise AgentError(
                    f"rank {self.rank.rank} ends step {self.step} without {_words(left[0])}, which the record has: "
                    "record the script again, as it runs here"
                )
            self._leave_out(len(self._recorded))
            for number in sorted(self._passed):
                self.over(number)
            self.carrier.step(self.step - self.rank.setup_steps)
        self.step += 1
        self._next = 0
        if self.carrier is not None and self.step == self.rank.setup_steps:
            self.carrier.ready()
            self.pace.held = True
        self.pace.go()

    def end(self) -> None:
        """The script has ended well."""
        if self.carrier is None:
            return
        if self.step <= self.rank.setup_steps and not self.rank.resumes:
            raise AgentError(
                f"the script of rank {self.rank.rank} ended after {self.step} steps of an optimizer; it needs more "
                f"than the {self.rank.setup_steps} of set-up, whose number --setup-steps gives"
            )
        self.carrier.bye()


def _words(call: Call | RecordedCall) -> str:
    return f"{call.kind} of {call.bytes:,} bytes over ranks {spans(sorted(call.ranks))}"
