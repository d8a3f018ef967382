"""A timetable on real packets: what is done when, as the switches confirm it, and what a run says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import ROOT
from script_runs import SMOKE, finish, rows, start
from tries import Try

from experiments.timetable import parse
from measure.metrics.steps import Steps
from railyard.timeline import Event, read_events

pytestmark = pytest.mark.root

FLAP = ROOT / "docs" / "examples" / "flap.yaml"
SCRIPT = "rail_reconfiguration.py"
RAN = (0, 8)


def of_run(events: list[Event], kind: str) -> list[Event]:
    return [e for e in events if e.source == "run" and e.kind == kind]


@pytest.mark.timed(late_ms=2)
def test_ports_that_flap_and_fail_in_a_step_do_so_in_time_and_the_job_ends(tmp_path: Path, machine: Try) -> None:
    out = tmp_path / "results"
    status, _, errors = finish(start(SCRIPT, str(FLAP), "--verify", "--no-figures", "--out", str(out)))
    assert status in RAN, errors
    (row,) = rows(out)
    assert (row["steps"], row["wrong"], row["misdelivered"], row["predicted_step_time_s"]) == (4, 0, 0, None)
    (timetable,) = [check for check in row["checks"] if check["name"] == "timetable"]
    assert timetable["ok"], timetable["says"]
    events = read_events(out / "points" / f"{row['point']:03d}" / "events.jsonl")
    done, acts = of_run(events, "act"), parse(str(FLAP))
    assert [e["act"] for e in done] == list(map(str, acts)) and not of_run(events, "undone")
    steps = Steps.read(events)
    first, third = steps.job(0)[0], steps.job(2)
    for act, event in zip(acts, done, strict=True):
        if act.at_s is not None:  # real seconds from the start of the job, stretched by the scale
            assert event.t - first == pytest.approx(row["time_scale"] * act.at_s, abs=0.005)
        else:  # the share of a step is that of the step before
            assert third[0] < event.t < third[1]
    switched = [e for e in events if e.kind == "reconfigure" and e.source == "controller" and not e["group"]]
    for event, change in zip(done, switched, strict=True):
        up = event["act"].split()[-2] == "restore"
        assert bool(change["circuits"]) == up and 0 < (change.end or 0.0) - event.t < 0.02, "as the switch confirmed it"
    assert max(e["late_s"] for e in done) < 0.002


def test_links_and_hosts_change_in_the_kernel_as_it_says(tmp_path: Path) -> None:
    out = tmp_path / "results"
    rates = "step 2 set g0-rail0 rate=20Mbps; step 3 set g0-rail0 rate=1Gbps"
    words = ("--workload", "smoke", "--modes", "electrical", "--steps", "5", "--events", rates, "--verify")
    status, _, errors = finish(start(SCRIPT, *words, "--no-figures", "--out", str(out)))
    assert status in RAN, errors
    (row,) = rows(out)
    assert next(check["ok"] for check in row["checks"] if check["name"] == "timetable"), row["verdict"]
    assert (row["wrong"], row["misdelivered"], row["lost_packets"], row["retransmissions"]) == (0, 0, 0, 0)
    _, second, third, _, fifth = row["step_times_s"]
    assert third > 1.2 * max(second, fifth), "with a link of 20 Mb/s in the place of about 70"


@pytest.mark.beside
def test_what_is_refused_while_it_runs_is_named_and_later_points_have_a_fabric_of_their_own(tmp_path: Path) -> None:
    out = tmp_path / "results"
    events = "step 1 restore rail0:1; step 1.2 connect rail0 3-7; step 1.5 disconnect rail0 7; step 1.7 fail rail0:3"
    words = (*SMOKE, "--modes", "one-shot", "--steps", "2", "--repeats", "2")  # 3 and 7 have no circuit
    line = (*words, "--events", events, "--no-figures", "--out", str(out))
    status, _, errors = finish(start(SCRIPT, *line))
    assert status == 8, errors
    (row,) = rows(out)
    assert "the first 'step 1 restore rail0:1', as port 1 of rail0 has not failed" in row["verdict"]
    for number in ("000", "001"):
        found = [e for e in read_events(out / "points" / number / "events.jsonl") if e.get("rail", "rail0") == "rail0"]
        (standing,) = (e for e in found if e.kind == "circuits")
        assert standing["failed"] == [], "of the point before"
        changes = [(e["ports"], e["circuits"]) for e in found if e.kind == "reconfigure" and e["group"] != ""]
        assert changes[-2:] == [([3, 7], [[3, 7]]), ([3, 7], [])]
        assert [e["state"] for e in found if e.kind == "port"] == ["failed"]
        assert [e["act"].split()[2] for e in of_run(found, "act")] == ["restore", "connect", "disconnect", "fail"]
