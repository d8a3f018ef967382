"""Timetables: what they say, on which fabrics, when a loop does it, and how it is judged."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from hypothesis import given
from hypothesis import strategies as st
from script_runs import called

from experiments.job_row import JobRow
from experiments.timetable import TimedAct, Timetable, check, parse
from measure.metrics.checks import Verdict
from measure.metrics.fidelity import judge
from measure.metrics.metrics import measure_point
from measure.metrics.timed_acts import timetable_checks
from railyard.errors import ConfigError
from railyard.loop import Timers
from railyard.timeline import Event
from topos.describe import plan
from topos.rails import RailTopo

FLAP = ROOT / "docs" / "examples" / "flap.yaml"
NUMBERS = st.integers(0, 10**12).map(lambda nanos: nanos / 1e9)
NAMES = st.from_regex(r"[a-z]{1,4}[0-9]{0,2}(:[0-9]{1,2}|-[a-z][0-9])?", fullmatch=True)
PORTS = st.lists(st.integers(1, 64), min_size=2, max_size=8).filter(lambda ports: len(ports) % 2 == 0)
VALUES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "fail": st.just({}),
    "restore": st.just({}),
    "set": st.dictionaries(st.sampled_from(["rate_mbps", "delay_ms", "loss_percent"]), NUMBERS, min_size=1),
    "connect": PORTS.map(lambda p: {"circuits": " ".join(f"{a}-{b}" for a, b in zip(p[::2], p[1::2], strict=True))}),
    "disconnect": PORTS.map(lambda ports: {"ports": " ".join(map(str, ports))}),
}


@st.composite
def acts(draw: st.DrawFn) -> tuple[TimedAct, ...]:
    """Acts in order, those at times first."""
    found = []
    for timed in (True, False):
        for moment in sorted(draw(st.lists(NUMBERS, max_size=5))):
            verb = draw(st.sampled_from(sorted(VALUES)))
            at_s, step = (moment, None) if timed else (None, moment)
            found.append(TimedAct(at_s, step, verb, draw(NAMES), draw(VALUES[verb])))
    return tuple(found)


UNITS = {"rate_mbps": "rate={}Mbps", "delay_ms": "delay={}ms", "loss_percent": "loss={}%"}


def text_of(act: TimedAct) -> str:
    when = f"step {act.step:.9f}" if act.at_s is None else f"{act.at_s:.9f}s"
    words = (UNITS[key].format(f"{v:.9f}") if key in UNITS else v for key, v in act.values.items())
    return " ".join([when, act.verb, act.target, *map(str, words)])


@given(acts())
def test_what_is_written_of_acts_is_read_as_the_same_acts(made: tuple[TimedAct, ...]) -> None:
    texts = list(map(text_of, made))
    assert parse("; ".join(texts)) == parse(texts) == made
    assert [str(act) for act in parse(texts)] == texts


def test_units_and_defaults() -> None:
    (act,) = parse("0.5min set g0-r0 rate=2Gbps delay=500us loss=1")
    assert (act.at_s, act.values) == (30.0, {"rate_mbps": 2000.0, "delay_ms": 0.5, "loss_percent": 1.0})
    (act,) = parse("step 3.5 connect rail0 1-3 2-4")
    assert (act.at_s, act.step, act.values, act.ports) == (None, 3.5, {"circuits": "1-3 2-4"}, [1, 3, 2, 4])
    assert parse("step 3.5 connect rail0 1 3 2 4") == (act,)


def test_a_flap_is_failures_and_repairs_between_which_other_acts_have_their_place() -> None:
    found = parse("1s flap rail0:3 every=1s for=2s; 1.2s set g0-r0 rate=5")
    moments = [(act.at_s, act.verb) for act in found]
    assert moments == [(1.0, "fail"), (1.2, "set"), (1.5, "restore"), (2.0, "fail"), (2.5, "restore")]


def test_every_name_of_a_fabric_is_known() -> None:
    fabric = plan(RailTopo(servers=2, gpus=2, fabric="ocs"))
    names = ("g0", "rail0", "rail0:1", "g0-rail0", "rail0-g0", fabric.switches[0].ports[0].interface)
    for name in names:
        check(parse(f"1s fail {name}; 2s restore {name}; 3s fail {name}; step 1 restore {name}"), fabric, steps=2)
    check(parse("1s connect rail0 1-3; 2s disconnect rail0 1 3; 3s set rail0:1 delay=1ms"), fabric)


def test_a_loop_does_each_thing_at_its_time_and_waits_for_what_is_not_known() -> None:
    done: list[tuple[str, float, float]] = []
    known = {"a": 1.0, "b": 1.0, "d": 9.0}
    timers = Timers()
    table = Timetable("abcd", known.get, lambda name, due: done.append((name, due, timers.now)))

    def turn() -> None:
        table.run_due(timers.now)
        if table.next_time() < inf:
            timers.at(table.next_time(), turn)

    turn()
    while timers.next_time < inf:
        timers.step()
    assert done == [("a", 1.0, 1.0), ("b", 1.0, 1.0)] and table.next_time() == inf and list(table.left) == ["c", "d"]
    known["c"] = 0.5  # it has passed when it is heard of
    turn()
    timers.step()
    assert done[2:] == [("c", 0.5, 1.0), ("d", 9.0, 9.0)] and not table.left


def _act(kind: str, **fields: Any) -> Event:
    return Event(1000.5, "run", kind, None, {"act": "1s fail rail0:1", **fields})


@pytest.mark.parametrize(
    ("events", "failed"),
    [
        ([_act("act", late_s=0.0019)], []),
        ([_act("act", late_s=0.0021)], ["lateness of the timetable"]),
        ([_act("act", late_s=0.0), _act("undone", reason="port 1 has failed already")], ["timetable"]),
        ([_act("undone", reason="the run ended before")], ["timetable"]),
    ],
)
def test_a_timetable_that_was_late_or_not_done_is_not_faithful(events: list[Event], failed: list[str]) -> None:
    checks = timetable_checks(events)
    assert [each.name for each in checks if not each.ok] == failed
    assert {each.name for each in checks if each.cause} <= {"lateness of the timetable"}, "a refusal comes every time"
    assert "undone" not in {e.kind for e in events} or events[-1]["reason"] in checks[0].says


def test_with_a_timetable_nothing_is_compared_with_the_model(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point("on-demand")).with_samples()
    events = [*job.timeline(), _act("act", late_s=0.0)]
    verdict: Verdict = judge(job.point, events, measure_point(job.point, events))
    assert verdict.faithful, str(verdict)
    unjudged = {each.name: each.says for each in verdict.checks if not each.judged}
    assert {"link rate", "drops", "retransmissions", "step spread", "model"} == unjudged.keys()
    assert "not predicted" in unjudged["model"]


def test_the_row_of_a_timetable_has_no_number_of_the_model() -> None:
    row = JobRow(predicted_step_time_s=1.0)
    row.judge(Verdict(True, ()))
    assert row.predicted_step_time_s == 1.0
    row.judge(Verdict(True, tuple(timetable_checks([_act("act", late_s=0.0)]))))
    assert row.predicted_step_time_s is None


def test_the_example_is_read_predicted_and_given_as_an_option(tmp_path: Path) -> None:
    found = parse(str(FLAP))
    assert [act.verb for act in found] == ["fail", "restore"] * 6 and found[0].at_s == 1.0
    done = called("predict", FLAP, "--json", "-")
    assert done.returncode == 0 and "Not predicted: what the timetable" in done.stderr, done.stderr
    done = called("predict", "rails", "--workload", "smoke", "--modes", "one-shot", "--steps", "4", "--events", FLAP)
    assert done.returncode == 0, done.stderr


def test_a_trace_of_a_link_is_its_changes_among_the_other_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link.csv").write_text("time_s, rate_mbps, loss_percent\r\n0, 50, 0\r\n0.01, 20.5, 1.5\r\n1, 50, 0\r\n")
    found = parse("1s fail g1; 2s replay g0-r0 link.csv; 2.5s restore g1")
    assert [(act.at_s, act.verb) for act in found] == [
        *((1.0, "fail"), (2.0, "set"), (2.01, "set"), (2.5, "restore"), (3.0, "set"))
    ]
    assert found[2] == TimedAct(2.01, None, "set", "g0-r0", {"rate_mbps": 20.5, "loss_percent": 1.5})
    texts = [str(act) for act in found]
    assert parse(texts, traces=False) == found, "what a run keeps and a lab gets names no file"
    with pytest.raises(ConfigError, match="names a file, which is read where a person types it"):
        parse(["2s replay g0-r0 link.csv"], traces=False)
