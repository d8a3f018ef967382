"""The law of circuits that follow the rounds of a collective, by hand and against the model of an ideal machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.collectives.all_to_all.experiment import AllToAllSettings
from experiments.collectives.all_to_all.formula import formula
from experiments.collectives.collective.experiment import CollectiveSettings
from experiments.collectives.rounds import Law, after_arrival_s, crossings, overtakes_s, stages
from experiments.collectives.straggler.experiment import StragglerSettings
from experiments.collectives.trial import WORLD, Trial
from experiments.settings import validated
from measure.metrics.collective import collective_times
from measure.results.row import Row
from railyard.scale import Scale

BYTES = 8948 * 4 * 56
"""Whole packets in every chunk of 7 and of 8."""


def reduced(algorithm: str, delays_ms: tuple[float, ...] = (0.0,), kind: str = "provisioned") -> Trial:
    fabric = {"kind": "ocs", "circuits": [kind], "reconfiguration_delay_ms": list(delays_ms)}
    found = validated(CollectiveSettings, {"algorithms": [algorithm], "sizes": [BYTES], "fabric": fabric}).trials()
    return next(iter(found))


def exchanged(policy: str) -> Trial:
    values = {"studies": ["grid"], "policies": [policy], "sizes": [BYTES // 8], "delays_ms": [0]}
    return next(iter(validated(AllToAllSettings, values).trials()))


def late(kind: str) -> Trial:
    values = {"studies": ["reconfiguration"], "sizes": [BYTES], "circuits": [kind], "reconfiguration_delays_ms": [0]}
    return next(t for t in validated(StragglerSettings, values).trials() if t.circuits == kind)


def ideal_s(trial: Trial) -> float:
    """Time after arrival of the second step on a machine that costs nothing."""
    job = trial.job_point(Scale(1.0), 2, 1)
    return collective_times(
        job.prediction(job.fabric.plan(), Scale(1.0)).events, trial.schedule, WORLD, 1
    ).after_arrival_s


def test_stages_are_runs_of_rounds_on_the_same_circuits() -> None:
    on_demand, ahead = (
        stages(reduced("recursive-halving-doubling", kind=kind)) for kind in ("on-demand", "provisioned")
    )
    assert [stage.first_round for stage in ahead] == [0, 1, 2, 4, 5]
    assert [stage.changes for stage in on_demand] == [False, True, True, True, True], "the first stands since the last"
    assert [stage.changes for stage in ahead] == [False, False, True, False, True], "lane 1 has one matching for ever"
    eighth = ahead[0].seconds / 4
    assert [stage.seconds / eighth for stage in ahead] == pytest.approx([4, 2, 2, 2, 4])
    assert [stage.seconds / eighth for stage in on_demand] == pytest.approx([2, 1, 1, 1, 2]), "at twice the rate"


@pytest.mark.parametrize("share", [0.0, 0.5, 2.5])
@pytest.mark.parametrize("trial", [reduced("recursive-halving-doubling"), reduced("recursive-halving-doubling", kind=
    "on-demand"), exchanged("provisioned"), late("provisioned"), late("on-demand")], ids=lambda t: t.name)  # fmt: skip
def test_the_law_is_the_time_of_the_model_below_and_above_the_time_of_a_round(trial: Trial, share: float) -> None:
    delay_s = share * stages(trial)[-1].seconds
    at = replace(trial, reconfiguration_delay_s=delay_s, straggler_delay_s=trial.straggler_delay_s)
    assert ideal_s(at) == pytest.approx(after_arrival_s(at), rel=5e-3)


def test_provisioned_rounds_take_the_longer_of_round_and_delay() -> None:
    trial = exchanged("provisioned")
    round_s = stages(trial)[0].seconds
    for delay_s in (0.3 * round_s, 3 * round_s):
        at = replace(trial, reconfiguration_delay_s=delay_s)
        assert formula(at) == pytest.approx(delay_s + 6 * max(round_s, delay_s) + round_s)


def test_a_straggler_on_demand_loses_to_the_ring_at_the_delay_of_the_papers_costs() -> None:
    ring = reduced("ring", kind="on-demand")
    wire_s = after_arrival_s(ring) / 1.75
    assert overtakes_s(after_arrival_s, late("on-demand"), ring) == pytest.approx(0.0516 * wire_s, rel=2e-3)
    assert overtakes_s(after_arrival_s, late("provisioned"), ring) == 0.0
    assert overtakes_s(after_arrival_s, late("on-demand"), late("provisioned")) == pytest.approx(
        9 / 8 * wire_s / 7, rel=2e-3
    )
    assert overtakes_s(after_arrival_s, ring, late("provisioned")) is None


def row_by(law: Law, t: Trial) -> Row:
    kind = {"study": t.study, "algorithm": t.schedule.algorithm, "circuits": t.circuits, "n": t.schedule.n}
    times = {"reconfiguration_delay_ms": t.reconfiguration_delay_s * 1e3, "after_arrival_s": law(t)}
    return {**kind, "bytes": t.bytes, **times, **dict(t.tags)}


def test_crossings_are_named_measured_and_by_law() -> None:
    policies = ["rotor", "provisioned", "multi-hop"]
    values = {"studies": ["delay"], "policies": policies, "delays_ms": [50, 200, 300, 400]}
    made = validated(AllToAllSettings, values)
    where = "8 ranks, 10,000,000 bytes:"
    assert list(crossings([row_by(formula, t) for t in made.trials()], made.trials, formula)) == [
        f"{where} provisioned is faster than rotor at reconfiguration delays from 235.1 ms on; law: at delays from "
        "235.1 ms on.",
        f"{where} static multi-hop is faster than rotor at reconfiguration delays from 259.0 ms on; law: at delays "
        "from 259.0 ms on.",
        f"{where} static multi-hop is faster than provisioned at none of the reconfiguration delays; law: at delays "
        "from 403.0 ms on.",
    ]
    assert not list(crossings([], made.trials, formula))
