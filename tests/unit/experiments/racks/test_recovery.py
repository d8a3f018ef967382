from __future__ import annotations

from dataclasses import replace

import pytest
from failover_events import (
    CHECKPOINT,
    DECIDE,
    DETECT,
    FAULT,
    FORKED,
    GRADIENTS,
    LAUNCH,
    LIBRARY,
    REPLACED,
    REST,
    RESUMED,
    REWIRE,
    SECOND_LAUNCH,
    SLOW_STEP,
    STEP,
    Run,
    struck,
)
from hypothesis import given
from hypothesis import strategies as st

from experiments.racks.recovery import all_reduce_busbw, checksums_agree, neighbour_row, read_incarnations, recoveries
from experiments.racks.row import FailoverRow
from experiments.racks.throughput import job_throughputs
from railyard.scale import Scale

SCALE = Scale(1 / 200)


def only(run: Run, scale: Scale = SCALE) -> FailoverRow:
    (found,) = recoveries(run.timeline(), scale, "A")
    return found


def test_every_part_is_what_it_was() -> None:
    found = only(struck())
    assert (found.state, found.rank, found.cause) == ("recovered", 1, "silent")
    assert found.replaced_by == 12 and found.changed_ports == 2
    assert found.outage_s == pytest.approx(RESUMED + STEP - FAULT) and found.restart_t == pytest.approx(RESUMED)
    parts = dict(found.breakdown)
    expected = {"detect": DETECT, "decide": DECIDE, "rewire": REWIRE, "launch": LAUNCH + FORKED,
                "checkpoint": CHECKPOINT, "library": LIBRARY, "start": REST, "first step": STEP}  # fmt: skip
    assert parts == pytest.approx(expected)
    assert list(parts) == list(expected)
    assert found.checkpoint_s == pytest.approx(CHECKPOINT)
    assert found.circuits_s == pytest.approx(DETECT + DECIDE + REWIRE)
    assert found.launch_s == pytest.approx(LAUNCH)
    assert found.first_collective_s == pytest.approx(STEP)
    assert [stage.given for stage in found.stages] == [False, True]


def test_who_has_the_checkpoint_loads_it_while_the_spare_fetches_it() -> None:
    run = struck()
    fetched = SECOND_LAUNCH + FORKED + CHECKPOINT
    for rank, t, end in ((0, SECOND_LAUNCH + 0.01, SECOND_LAUNCH + 0.2), (12, fetched, fetched + 0.5)):
        run.add(t, "agent", "stage", end, rank=rank, incarnation=1, name="load", given=False)
    parts = dict(only(run).breakdown)
    assert list(parts)[3:7] == ["launch", "checkpoint", "load", "library"]
    assert parts["checkpoint"] == pytest.approx(CHECKPOINT + FORKED - 0.01) and parts["load"] == pytest.approx(0.5)
    assert sum(parts.values()) == pytest.approx(only(run).outage_s)


@given(time=st.floats(0.1, 5.0))
def test_results_are_real_seconds(time: float) -> None:
    plain, scaled = only(struck()), only(struck(), Scale(1 / 200, time))
    assert scaled.outage_s == pytest.approx((plain.outage_s or 0) / time)
    assert [s for _, s in scaled.breakdown] == pytest.approx([s / time for _, s in plain.breakdown])
    assert scaled.step_time_before_s == pytest.approx(STEP / time)


def test_steps_lost_and_under_way() -> None:
    found = only(struck())
    assert found.lost_steps == 1, "step 3 was done by all and is done again"
    assert found.unfinished_steps == 1
    assert found.first_step == 3 and found.incarnation == 1
    assert found.steps_done == {0: 9, 1: 4, 2: 9, 3: 9, 12: 5}


def test_a_step_that_one_member_lacks_is_not_lost() -> None:
    run = struck()
    run.events = [e for e in run.events if not (e.kind == "step" and e["rank"] == 1 and e["step"] == 3)]
    assert only(run).lost_steps == 0
    assert only(run).unfinished_steps == 1


def test_step_times_leave_out_the_first_of_each_life() -> None:
    run = struck(after=SLOW_STEP)
    for number, e in enumerate(run.events):
        if e.kind == "step" and e["step"] == 0 and e["rank"] < 4:
            run.events[number] = replace(e, t=e.t - 0.9)
    found = only(run)
    assert found.step_time_before_s == pytest.approx(STEP)
    assert found.step_time_after_s == pytest.approx(SLOW_STEP)


def test_bandwidth_is_that_of_nccl_tests() -> None:
    found = only(struck(after=SLOW_STEP))
    first, _ = read_incarnations(struck().timeline(), "A")
    algbw = SCALE.real_bytes(GRADIENTS) / (STEP / 2) / 1e9
    assert found.busbw_before_gb_s == all_reduce_busbw(first, SCALE) == pytest.approx(algbw * 2 * 3 / 4)
    assert found.busbw_after_gb_s == pytest.approx(algbw * 2 * 3 / 4 * STEP / SLOW_STEP)


# ---- other ends -----------------------------------------------------------------------------------------------------


def test_a_stranded_job_has_no_outage() -> None:
    found = only(struck(replaced=False))
    assert found.state == "stranded" and found.reason == "no spare is left"
    assert found.outage_s is None and found.restart_s is None and found.lost_steps is None
    assert found.detect_s == pytest.approx(DETECT) and found.decide_s == pytest.approx(DECIDE)
    assert dict(found.breakdown) == pytest.approx({"detect": DETECT, "decide": DECIDE})


@pytest.mark.parametrize(
    ("without", "state", "known"),
    [
        ({"failed", "replaced", "launch"}, "not detected", []),
        ({"replaced"}, "not decided", ["detect"]),
        ({"step"}, "not resumed", ["detect", "decide", "rewire"]),
    ],
)
def test_what_never_came_is_said(without: set[str], state: str, known: list[str]) -> None:
    run = struck(neighbour=False)
    later = {"step": RESUMED, "launch": FAULT}
    run.events = [e for e in run.events if e.kind not in without or e.t < later.get(e.kind, 0.0)]
    found = only(run)
    assert found.state == state and found.outage_s is None
    assert [name for name, _ in found.breakdown] == known


def test_a_spare_that_dies_costs_nobody_anything() -> None:
    run = struck()
    run.add(12.0, "run", "fault", job="", rank=13, what="killed")
    run.add(12.5, "run", "fault", job="", rank=-1, what="the controller is killed")
    spare, member = recoveries(run.timeline(), SCALE)
    assert (spare.rank, spare.state, spare.outage_s) == (13, "no member", None)
    assert member.outage_s == pytest.approx(RESUMED + STEP - FAULT)


def twice() -> Run:
    """Chip 12 dies 0.3 s after its job's second life was launched, before a step; chip 13 stands in from then on."""
    run = struck(neighbour=False)
    run.events = [e for e in run.events if e.t < REPLACED or e.kind == "replaced"]
    run.launch(REPLACED + 0.2, "A", 1, (0, 12, 2, 3))
    run.add(REPLACED + 0.5, "run", "fault", job="A", rank=12, what="killed")
    run.add(REPLACED + 1.0, "controller", "failed", job="A", rank=12, cause="silent", heard=None)
    run.add(REPLACED + 1.1, "controller", "replaced", REPLACED + 1.2, job="A", number=2, dead=[1, 12],
            replacements=[[12, 13]], ports=[], kept=[])  # fmt: skip
    run.launch(REPLACED + 1.5, "A", 2, (0, 13, 2, 3))
    run.steps(REPLACED + 2.0, STEP, (0, 13, 2, 3), range(3, 6), "A", 2)
    return run


def test_a_second_fault_during_the_recovery() -> None:
    first, second = recoveries(twice().timeline(), SCALE, "A")
    done = REPLACED + 2.0 + STEP
    assert first.state == second.state == "recovered"
    assert first.outage_s == pytest.approx(done - FAULT)
    assert second.outage_s == pytest.approx(done - REPLACED - 0.5)
    assert (first.incarnation, second.incarnation) == (2, 2)
    assert (first.lost_steps, second.lost_steps) == (1, 0)
    assert (first.unfinished_steps, second.unfinished_steps) == (1, 0)
    assert second.step_time_before_s is None
    for found in (first, second):
        assert sum(s for _, s in found.breakdown) == pytest.approx(found.outage_s)


def test_two_faults_one_after_the_other_each_count_their_own_life() -> None:
    run = struck(neighbour=False)
    t = RESUMED + 3 * STEP + 0.2
    run.events = [e for e in run.events if (e.end or e.t) < t]
    run.add(t, "run", "fault", job="A", rank=2, what="killed")
    run.add(t + 1, "controller", "failed", job="A", rank=2, cause="silent", heard=None)
    run.add(t + 1, "controller", "replaced", t + 1.1, job="A", number=2, dead=[1, 2], replacements=[[2, 13]], ports=[])
    run.launch(t + 2, "A", 2, (0, 12, 13, 3))
    run.steps(t + 3, SLOW_STEP, (0, 12, 13, 3), range(3, 7), "A", 2)
    first, second = recoveries(run.timeline(), SCALE, "A")
    assert first.lost_steps == 1 and second.lost_steps == 3
    assert first.step_time_after_s == pytest.approx(STEP)
    assert second.step_time_after_s == pytest.approx(SLOW_STEP)
    assert second.stages == () and second.checkpoint_s is None


# ---- lives, checksums -----------------------------------------------------------------------------------------------


def test_events_belong_to_the_life_of_their_rank() -> None:
    incarnations = read_incarnations(struck().timeline())
    assert [(incarnation.job, incarnation.number) for incarnation in incarnations] == [("A", 0), ("B", 0), ("A", 1)]
    first, _, second = incarnations
    assert first.steps.complete == (0, 1, 2, 3) and second.steps.complete == (3, 4, 5, 6, 7)
    assert {e["rank"] for e in first.events} == {0, 1, 2, 3}
    assert {e["rank"] for e in second.events} == {0, 12, 2, 3}


def test_a_checksum_that_differs_is_found() -> None:
    run = struck()
    run.add(30.0, "agent", "checkpoint", 30.1, rank=0, step=6, incarnation=1, bytes=8, checksum=1005)
    incarnations = read_incarnations(run.timeline(), "A")
    assert checksums_agree(incarnations) is True
    assert checksums_agree(incarnations, {3: 1003, 7: 1007}) is True
    assert checksums_agree(incarnations, {7: 1}) is False
    assert (
        checksums_agree(read_incarnations([e for e in run.timeline() if e.kind not in ("state", "checkpoint")])) is None
    )
    for kind, step, wrong in (("state", 3, 9), ("checkpoint", 6, 1006), ("state", 4, None)):
        spoilt = Run()
        spoilt.events = [e for e in run.events if wrong or e.kind != kind or e["step"] != step]
        if wrong:
            spoilt.add(30.2, "agent", kind, rank=2, step=step, incarnation=1, checksum=wrong)
        assert checksums_agree(read_incarnations(spoilt.timeline(), "A")) is False, (kind, step)


# ---- the neighbour --------------------------------------------------------------------------------------------------


def test_the_neighbour_is_slower_once_the_job_uses_its_links() -> None:
    run = struck()
    effect = neighbour_row(run.timeline(), SCALE, only(run), "B")
    assert effect.step_time_before_s == pytest.approx(1.0) and effect.step_time_during_s == pytest.approx(1.0)
    assert effect.step_time_after_s == pytest.approx(1.5) and effect.change == pytest.approx(0.5)
    assert min(effect.steps_before or 0, effect.steps_during or 0, effect.steps_after or 0) > 3


def test_a_stranded_job_does_nothing_to_its_neighbour_afterwards() -> None:
    run = struck(replaced=False)
    effect = neighbour_row(run.timeline(), SCALE, only(run), "B")
    assert effect.step_time_after_s is None and effect.change is None
    assert effect.step_time_during_s is not None


def test_a_neighbour_that_is_not_there_has_no_times() -> None:
    run = struck(neighbour=False)
    row = neighbour_row(run.timeline(), SCALE, only(run), "B")
    assert (row.steps_before, row.steps_during, row.steps_after) == (0, 0, 0)


# ---- throughput -----------------------------------------------------------------------------------------------------


@given(bin_s=st.floats(0.03, 7.0), time=st.sampled_from([0.5, 1.0, 2.0]))
def test_all_bytes_are_in_the_bins(bin_s: float, time: float) -> None:
    scale = Scale(1 / 200, time)
    events = struck().timeline()
    found = job_throughputs(events, scale, FAULT, bin_s)
    assert set(found) == {"A", "B"}
    for job, ranks in (("A", {0, 1, 2, 3, 12}), ("B", {8, 9})):
        series = found[job]
        widths = [b - a for a, b in zip(series.edges_s, series.edges_s[1:], strict=False)]
        moved = sum(w * r for w, r in zip(widths, series.gbps, strict=True))
        sent = sum(e["bytes"] for e in events if e.kind == "transfer" and e["rank"] in ranks)
        assert moved == pytest.approx(scale.real_bytes(sent) * 8 / 1e9)
        assert any(abs(edge) < 1e-6 for edge in series.edges_s)


def test_nothing_moves_during_the_outage() -> None:
    series = job_throughputs(struck().timeline(), SCALE, FAULT, 0.5)["A"]
    inside = [r for t, r in zip(series.edges_s, series.gbps, strict=False) if 0 <= t < RESUMED - FAULT]
    assert inside and not any(inside)


def test_without_transfers_what_was_sent_counts() -> None:
    run = struck(neighbour=False)
    run.events = [e for e in run.events if e.kind != "transfer"]
    assert max(job_throughputs(run.timeline(), SCALE, FAULT)["A"].gbps) > 0
