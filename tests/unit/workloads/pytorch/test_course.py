"""The calls of a rank held against its record, and the pace of its computing; no torch."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from railyard.errors import AgentError, ConfigError
from workloads.pytorch.course import Course, Pace
from workloads.pytorch.rail_client import RailClient
from workloads.pytorch.script_ranks import RecordedCall, ScriptRank
from workloads.pytorch.trace import Call, CallKind

RANK = ScriptRank(2, 4, 2, 4, "127.0.0.1", 1, "lo", "out", setup_steps=1, front_end_below=1000)
LARGE = RecordedCall("all_reduce", (0, 1, 2, 3), 24_654_848, True, 0.02)
SMALL = RecordedCall("all_reduce", (0, 1, 2, 3), 4, False)
GATHER = RecordedCall("all_gather", (0, 1, 2, 3), 4000, True)


class Heard:
    """A carrier that writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.heard.append((name, *args))


def course_of(*recorded: RecordedCall, compute: str = "real") -> tuple[Course, list[tuple[Any, ...]]]:
    carrier = Heard()
    rank = ScriptRank(**(vars(RANK) | {"compute": compute}))
    course = Course(rank, carrier=cast(RailClient, carrier), recorded=recorded)
    course.stepped()
    assert carrier.heard == [("ready",)]
    return course, carrier.heard


def call(kind: CallKind, size: int, ranks: tuple[int, ...] = (0, 1, 2, 3), **more: Any) -> Call:
    return Call(1, kind, ranks, size, **more)


def test_calls_take_their_numbers_by_order_and_calls_of_gloo_may_be_missing() -> None:
    course, heard = course_of(SMALL, GATHER, SMALL, LARGE)
    asked = course.ask(call("all_gather", 4000), "world")
    assert (asked.recorded, asked.on_rail) == (1, True)
    extra = course.ask(call("broadcast", 999), "world")
    assert (extra.recorded, extra.on_rail) == (None, False)
    small = course.ask(call("all_reduce", 4), "world")
    assert (small.recorded, small.on_rail) == (2, False)
    with course.waiting(small):
        assert course.awaited == small.awaited
    assert course.ask(call("all_reduce", LARGE.bytes), "world").recorded == 3
    course.stepped()
    assert heard[1:] == [("passed", 0), ("over", 0), ("passed", 2), ("over", 2), ("step", 0)]


def test_messages_are_recorded_between_their_two_ranks_and_all_to_alls_with_any_bytes() -> None:
    course, _ = course_of(RecordedCall("send", (2, 3), 5000, True), RecordedCall("all_to_all", (2, 3), 5000, True))
    asked = course.ask(call("send", 5000, (0, 1, 2, 3), peer=3), "pp")
    assert (asked.recorded, asked.awaited.ranks, asked.awaited.needs) == (0, (2, 3), "pp recv 2>3")
    assert course.ask(call("all_to_all", 7000, (2, 3)), "ep").on_rail


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        ((GATHER,), "the record has all_gather of 4,000 bytes over ranks 0-3 there"),
        ((), "the record has no more call there"),
    ],
)
def test_a_large_call_that_is_not_next_in_the_record_is_named(recorded: tuple[RecordedCall, ...], words: str) -> None:
    course, _ = course_of(*recorded)
    with pytest.raises(AgentError) as refusal:
        course.ask(call("all_reduce", LARGE.bytes), "world")
    assert str(refusal.value) == (
        f"rank 2 asks for all_reduce of 24,654,848 bytes over ranks 0-3 as call 0 of step 1; {words}: "
        "record the script again, as it runs here"
    )


def test_a_step_without_a_large_call_of_the_record_and_a_script_without_steps_are_named() -> None:
    course, _ = course_of(GATHER)
    with pytest.raises(AgentError, match="rank 2 ends step 1 without all_gather of 4,000 bytes over ranks 0-3, which"):
        course.stepped()
    course, _ = course_of(GATHER)
    with pytest.raises(AgentError, match="ended after 1 steps of an optimizer; it needs more than the 1 of set-up"):
        course.end()


def test_recorded_computes_hold_a_script_and_late_ones_are_counted() -> None:
    course, _ = course_of(LARGE, LARGE, RecordedCall("end", (), 0, False, 0.01), compute="recorded")
    begin = time.monotonic()
    course.ask(call("all_reduce", LARGE.bytes), "world")
    assert time.monotonic() - begin >= 0.019
    course.pace.go()
    time.sleep(0.03)
    course.ask(call("all_reduce", LARGE.bytes), "world")
    assert course.pace.report["late_s"] >= 0.009


def test_scaled_computes_last_so_many_times_their_processor_time() -> None:
    pace = Pace("scaled:3")
    pace.held = True
    pace.go()
    begin = time.monotonic()
    while time.monotonic() < begin + 0.02:
        pass
    seconds = pace.stop()
    assert time.monotonic() - begin >= 3 * seconds > 0


def test_another_pace_is_refused() -> None:
    with pytest.raises(ConfigError, match="compute: must be real, recorded or scaled:X with a number X, not 'slow'"):
        Pace("slow")
