"""The course of one rank of a script: its calls, waits and steps, written down, paced and held against its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from railyard.digits import spans
from railyard.errors import AgentError
from workloads.pytorch.pace import Pace
from workloads.pytorch.script_ranks import RecordedCall, ScriptRank
from workloads.pytorch.standstill import Awaited
from workloads.pytorch.trace import Call, StepEnd, TraceEvent, Wait, Work


class Carrier(Protocol):
    """What carries the calls of the recorded step (``workloads.pytorch.rail_client.RailClient``)."""

    def ready(self) -> None: ...

    def carry(
        self,
        n: int,
        kind: str,
        dtype: str,
        reduce: str,
        send: memoryview,
        receive: memoryview,
        then: Callable[[Exception | None], None],
        *,
        sent: Sequence[int] = (),
        received: Sequence[int] = (),
    ) -> None: ...

    def passed(self, n: int) -> None: ...

    def over(self, n: int) -> None: ...

    def step(self, k: int) -> None: ...

    def bye(self) -> None: ...


@dataclass(eq=False)
class Asked:
    """A call that the script asked for: ``recorded`` is its number in the record (None: none of it)."""

    awaited: Awaited
    recorded: int | None
    on_rail: bool
    waited: bool = False


class Course:
    """What a rank does, from call to call. ``write`` takes the events of its trace."""

    def __init__(
        self,
        rank: ScriptRank,
        write: Callable[[TraceEvent], object],
        carrier: Carrier | None,
        recorded: Sequence[RecordedCall],
    ) -> None:
        self.rank = rank
        self.carrier = carrier
        self.step = 0
        self.awaited: Awaited | None = None
        """The call that the script waits for now."""
        self.made: dict[str, int] = {}
        """Calls by channel (``Awaited.needs``)."""
        self.pace = Pace(rank.compute)
        self.pace.held = carrier is None
        self._write = write
        ends = [row.seconds for row in recorded if row.kind == "end"]
        self._recorded = tuple(row for row in recorded if row.kind != "end")
        self._end_s = ends[0] if ends else None
        self._next = 0
        self._calls = 0
        self._passed: set[int] = set()
        """Calls of the record that gloo carries and that are not over."""

    @property
    def _by_record(self) -> bool:
        return self.carrier is not None and self.step >= self.rank.setup_steps

    # -- calls ---------------------------------------------------------------------------------------

    def ask(self, call: Call, channel: str, needs: str = "") -> Asked:
        """The script asks for ``call`` on ``channel``, which waits for that of others on ``needs`` ("": the same)."""
        number = self._match(call) if self._by_record else None
        row = None if number is None else self._recorded[number]
        seconds = self.pace.stop(None if row is None else row.seconds)
        self._write(replace(call, step=self.step, work=Work(seconds)))
        place = self.made[channel] = self.made.get(channel, 0) + 1
        pair = call.ranks if call.peer is None else (self.rank.rank, call.peer)
        awaited = Awaited(self._calls, call.kind, pair, call.bytes, needs or channel, place)
        self._calls += 1
        asked = Asked(awaited, number, row is not None and row.on_rail)
        if number is not None and not asked.on_rail:
            self._pass(number)
        return asked

    def _match(self, call: Call) -> int | None:
        """The number in the record of ``call``; None if gloo carries it although it is not there, as it is small."""
        small = call.bytes < self.rank.front_end_below
        for number in range(self._next, len(self._recorded)):
            row = self._recorded[number]
            if self._is(call, row):
                for skipped in range(self._next, number):
                    self._pass(skipped)
                    self.over(skipped)
                self._next = number + 1
                return number
            if row.on_rail:
                break
        if small:
            return None
        there = self._recorded[self._next] if self._next < len(self._recorded) else None
        shown = "no more call" if there is None else _words(there.kind, there.bytes, there.ranks)
        raise AgentError(
            f"rank {self.rank.rank} asks for {_words(call.kind, call.bytes, call.ranks)} as call {self._next} of step "
            f"{self.step}; the record has {shown} there: record the script again, as it runs here"
        )

    def _is(self, call: Call, row: RecordedCall) -> bool:
        sizes_agree = call.bytes == row.bytes or (call.kind == "all_to_all" and row.on_rail)
        pair = set() if call.peer is None else {self.rank.rank, call.peer}
        return call.kind == row.kind and sizes_agree and set(row.ranks) in (set(call.ranks), pair)

    def _pass(self, number: int) -> None:
        assert self.carrier is not None
        self._passed.add(number)
        self.carrier.passed(number)

    def over(self, number: int | None) -> None:
        """Gloo has done the call with that number in the record; safe to say twice and from any thread."""
        if number in self._passed and self.carrier is not None:
            self._passed.discard(number)
            self.carrier.over(number)

    @contextmanager
    def waiting(self, asked: Asked) -> Iterator[None]:
        """Within it the script waits for a call to be over."""
        seconds = self.pace.stop()
        if not asked.waited:
            asked.waited = True
            self._write(Wait(self.step, asked.awaited.number, Work(seconds)))
        self.awaited = asked.awaited
        try:
            yield
        finally:
            self.awaited = None
            self.pace.go()
        if not asked.on_rail:
            self.over(asked.recorded)

    @contextmanager
    def making_group(self, words: str) -> Iterator[None]:
        """Within it the script waits until all ranks of the job make a group."""
        place = self.made["groups"] = self.made.get("groups", 0) + 1
        self.awaited = Awaited(-1, words, tuple(range(self.rank.world)), 0, "groups", place)
        try:
            yield
        finally:
            self.awaited = None
            self.pace.go()

    # -- steps ---------------------------------------------------------------------------------------

    def stepped(self) -> None:
        """The optimizer has taken a step."""
        seconds = self.pace.stop(self._end_s if self._by_record else None)
        self._write(StepEnd(self.step, Work(seconds)))
        if self.carrier is not None and self._by_record:
            self._end_record()
            self.carrier.step(self.step - self.rank.setup_steps)
        self.step += 1
        if self.carrier is not None and self.step == self.rank.setup_steps:
            self.carrier.ready()
            self.pace.held = True
        self._next = 0
        self.pace.go()

    def _end_record(self) -> None:
        for number in range(self._next, len(self._recorded)):
            row = self._recorded[number]
            if row.on_rail:
                raise AgentError(
                    f"rank {self.rank.rank} ends step {self.step} where the record has call "
                    f"{number}, {_words(row.kind, row.bytes, row.ranks)}: record the script again, as it runs here"
                )
            self._pass(number)
        for number in sorted(self._passed):
            self.over(number)

    def end(self) -> dict[str, Any]:
        """The script has ended well; what is reported about its computing."""
        if self.carrier is not None:
            if self.step <= self.rank.setup_steps:
                raise AgentError(
                    f"the script of rank {self.rank.rank} ended after {self.step} steps of an optimizer; it needs more "
                    f"than its {self.rank.setup_steps} steps of set-up, which --setup-steps gives"
                )
            self.carrier.bye()
        return self.pace.report


def _words(kind: str, size: int, ranks: Sequence[int]) -> str:
    return f"{kind} of {size:,} bytes over ranks {spans(sorted(ranks))}"
