"""The verdict on an edge run fails for each thing that goes wrong, and for what was not recorded."""

from __future__ import annotations

import pytest
from synthetic_job import build_plan, counters, samples

from experiments.propius.verdict import EdgeLinks, Expected, judge_edge
from measure.metrics.checks import Verdict
from railyard.scale import goodput_share
from railyard.timeline import Event

PLAN = build_plan(fabric="electrical")
SIZE, MBPS = 1_000_000, 8.0
LINKS = EdgeLinks((MBPS,) * 2, 0.01)
IDEAL_S = SIZE * 8 / (MBPS * 1e6 * goodput_share(1500)) + 0.01


def events(
    *, upload: float = 1.0, late_s: float = 0.001, busy: float = 0.3, dropped: int = 0, outcome: str = "acknowledged"
) -> list[Event]:
    """A run of two clients; ``upload`` is the measured time of an upload over the ideal one."""
    cpu = {"busy": busy, "cores": 2, "steal": 0.0, "other": 0.0, "switch_busy": 0.2, "switch_thread": 0.2}
    found = samples(PLAN, 0.0, 5.0, cpu, dropped) + counters(PLAN, 0.0, 0, "ovs") + counters(PLAN, 5.0, 9, "ovs")
    for client in range(2):
        ids = {"client": client, "job": 0, "round": 0}
        found.append(Event(0.0, "edge", "train", 1.0, {**ids, "late_s": late_s}))
        pushed = {**ids, "bytes": SIZE, "outcome": outcome}
        found.append(Event(1.0, "edge", "push", 1.0 + upload * IDEAL_S, pushed))
    return found


def failed(verdict: Verdict) -> list[str]:
    return [check.name for check in verdict.failed]


def test_an_undisturbed_run_is_faithful() -> None:
    verdict = judge_edge(events(), LINKS, [Expected("response time", 101.0, 100.0, 0.05)], plan=PLAN, sums=(0, 8))
    assert verdict.faithful, str(verdict)


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (events(upload=1.2), "link rate"),
        (events(busy=1.0), "cores"),
        (events(late_s=0.1), "timer lag"),
        (events(dropped=50), "drops"),
        (events(outcome="lost"), "link rate"),
    ],
)
def test_what_goes_wrong_is_named(found: list[Event], name: str) -> None:
    assert failed(judge_edge(found, LINKS, plan=PLAN)) == [name]


def test_a_prediction_that_is_missed_and_a_wrong_sum_are_named() -> None:
    missed = [Expected("response time", 130.0, 100.0, 0.25), Expected("bytes", None, 100.0, 0.02)]
    verdict = judge_edge(events(), LINKS, missed, plan=PLAN, sums=(1, 8))
    assert failed(verdict) == ["model: response time", "model: bytes", "sums"]


def test_what_was_not_recorded_is_not_faithful() -> None:
    assert failed(judge_edge([], LINKS, plan=PLAN, sums=(0, 0))) == [
        "other guests",
        "other processes",
        "link rate",
        "cores",
        "datapath thread",
        "fast path",
        "sampler events",
        "samples",
        "counters",
        "timer lag",
        "drops",
        "sums",
    ]


def test_links_that_lose_packets_on_purpose_show_no_rate_and_no_drops() -> None:
    lossy = EdgeLinks((MBPS,) * 2, 0.01, lossy=True)
    assert judge_edge(events(upload=3.0, dropped=500), lossy, plan=PLAN).faithful
