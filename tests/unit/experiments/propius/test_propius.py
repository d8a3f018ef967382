"""Settings, predictions, tables and figures of the Propius experiment, without packets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.propius import virtual
from experiments.propius.experiment import Propius
from experiments.propius.figures import propius_figures
from experiments.propius.metrics import edge_metrics
from experiments.propius.report import REPORT
from experiments.propius.round_study import TrunkModel
from experiments.propius.row import PropiusRow, interval, merged, ratios
from experiments.propius.run import EventFile
from experiments.propius.settings import STUDIES, PropiusSettings
from experiments.report import Recorded, exit_status, show
from experiments.settings import validated
from measure.metrics.records import numbers_check
from railyard.errors import ConfigError
from railyard.point_folder import events_of
from railyard.timeline import Event

SMALL = {"loads": [48], "policies": ["irs"], "rounds": 1, "virtual_clients": [6000], "virtual_rounds": 1}


def settings(**values: Any) -> PropiusSettings:
    return validated(PropiusSettings, {**SMALL, **values})


def as_read(row: PropiusRow) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(row.to_json()))
    return found


def run_row(study: str = "jct", *, faithful: bool | None = True, **values: Any) -> dict[str, Any]:
    row = PropiusRow(
        study=study, policy="irs", mode="fixed", topology="tree", clients=48, jobs=5, finished=5, jct_s=900.0
    )
    row.faithful = faithful
    return as_read(replace(row, **values))


def test_a_policy_that_binds_a_client_twice_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from experiments.propius.control.policies import EdgePolicy\n"
        "class Twice(EdgePolicy):\n"
        "    def order(self, client, jobs, plan):\n"
        "        return [*jobs, *jobs]\n"
    )
    with pytest.raises(ConfigError, match="twice to one client"):
        Propius(settings(policies=[f"{file}:Twice"])).check()


def test_studies_without_jobs_need_no_clients_for_them() -> None:
    Propius(settings(clients=4, studies=["tree", "trunk"])).check()


def test_demands_of_the_authors_jobs_are_in_proportion_to_the_clients() -> None:
    assert [job.demand for job in settings(clients=48).five_jobs()] == [2, 3, 3, 6, 12]
    assert [job.demand for job in settings(clients=12).five_jobs()] == [1, 1, 1, 2, 3]


def test_predictions_have_the_laws_of_tree_and_star_and_no_verdict() -> None:
    rows = [as_read(row) for row in Propius(settings(studies=["tree", "trunk"])).predict()]
    assert {row["study"] for row in rows} == {"tree", "trunk"}
    assert {row["faithful"] for row in rows} == {None}
    law = {(row["topology"], row["mode"]): row["predicted_root_bytes"] for row in rows if row["study"] == "tree"}
    assert law["star", "fixed"] == 48 * 925_200
    assert law["tree", "fixed"] == 4 * 925_200
    assert law["tree", "authors"] == 48 * 925_200


def test_an_optical_trunk_beats_an_electrical_one_up_to_the_crossing() -> None:
    model = TrunkModel.of(settings())
    electrical = model.round_s("electrical", 0.0)
    for policy in ("phase", "demand"):
        assert model.round_s(policy, 0.0) < electrical < model.round_s(policy, 5.0)
    assert "up to a delay of" in model.crossing


def test_rows_in_virtual_time_have_published_values_only_for_all_rounds() -> None:
    rows = [as_read(row) for row in Propius(settings(studies=["jct", "delays"]))._authors_runs()]
    assert [row["study"] for row in rows] == ["jct", "delays"]
    assert rows[0]["layer"] == "virtual" and rows[0]["computed"] and rows[0]["authors_jct_s"] is None
    assert rows[0]["finished"] == 10 and rows[0]["jct_s"] > 0


def test_intervals_and_ratios_are_taken_seed_by_seed() -> None:
    assert str(interval([2.0])) == "2.00"
    found = interval([1.0, 2.0, 3.0])
    assert (found.mean, found.high) == (2.0, pytest.approx(2 + 4.303 / 3**0.5, rel=1e-4))
    rows = [
        run_row(policy=policy, seed=seed, jct_s=value * seed)
        for policy, value in (("random-client", 300.0), ("irs", 100.0))
        for seed in (1, 2)
    ]
    assert ratios(rows, "jct_s", "random-client", "irs")[48].mean == pytest.approx(3.0)
    assert [(row["policy"], row["jct_s"], row["seeds"]) for row in merged(rows)] == [
        ("random-client", 450.0, 2),
        ("irs", 150.0, 2),
    ]


def test_a_starved_job_is_named_and_not_averaged_away() -> None:
    rows = [run_row(seed=1), run_row(seed=2, finished=4, starved="job-5", faithful=False)]
    (one,) = merged(rows)
    assert (one["starved"], one["faithful"]) == ("job-5", False)
    jobs = PropiusSettings().jobs()
    row = virtual.policy_row(PropiusSettings(), "irs", 48, 1, jobs)
    numbers = range(len(jobs))
    events = [Event(0.0, "edge", "registered", None, {"job": n, "name": jobs[n].name}) for n in numbers]
    events += [Event(10.0, "edge", "finished", None, {"job": n}) for n in numbers[:-1]]
    virtual.fill(row, edge_metrics(events), jobs)
    assert (row.jct_s, row.finished, row.starved) == (None, 4, "job-5")
    assert row.jct_by_job == dict.fromkeys([job.name for job in jobs[:-1]], 10.0)


def test_rows_without_packets_have_no_say_in_the_verdict() -> None:
    computed = run_row(faithful=None, computed=True, layer="virtual")
    assert exit_status([computed]) == 0
    assert exit_status([computed, run_row()]) == 0
    assert exit_status([computed, run_row(faithful=False)]) == 8


ROWS = {
    "jct": run_row(predicted_jct_s=1000.0, starved="job-5"),
    "utilisation": run_row("utilisation", utilisation=0.5, active_share=0.4, run_s=2000.0),
    "throughput": run_row("throughput", bindings_per_s=0.2, useful_per_s=0.1, rounds_repeated=3),
    "delays": run_row("delays", scheduling_delay_s=60.0, response_time_s=140.0),
    "tree": run_row("tree", root_bytes=44_400_000, predicted_root_bytes=44_400_000, root_received_bytes=44_000_000),
    "trouble": run_row(
        "trouble", case="leaf killed", updates_acknowledged=400, updates_lost=0, updates_twice=0, updates_late=3
    ),
    "trunk": run_row("trunk", policy="phase", delay_ms=500.0, time_s=40.0, predicted_time_s=39.0, root_bytes=3_700_000),
}


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_has_a_table_of_80_columns_and_a_figure(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [ROWS[study], {**ROWS[study], "mode": "authors"}]
    console = Console(width=80)
    show(REPORT, rows, {}, console=console)
    printed = capsys.readouterr().out
    assert "…" not in printed and "yes" in printed
    drawn = list(propius_figures(rows))
    assert [figure.name for figure in drawn] == [f"propius-{study}"]


def test_the_report_says_what_faults_cost_and_where_the_trunks_cross(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ROWS["trouble"] | {"updates_lost": 2},
        ROWS["trunk"] | {"finding": "Turns are faster up to a delay of 1.88 s"},
    ]
    recorded = Recorded({}, rows, ())
    assert [drawn.name for drawn in REPORT.figures(recorded)] == ["propius-trouble", "propius-trunk"]
    show(REPORT, rows, {}, console=Console(width=200))
    printed = capsys.readouterr().out
    assert "fixed: 2 of 400 acknowledged updates lost, 0 counted twice." in printed
    assert "Turns are faster up to a delay of 1.88 s." in printed


def test_events_of_processes_in_a_folder_below_are_collected_and_a_missing_one_shows(tmp_path: Path) -> None:
    below = tmp_path / "control-abc"
    below.mkdir()
    file = EventFile(below / "edge-control-0.jsonl")
    for client in range(4):
        file.note("bound", client=client, job=0, round=0)
    file.close()
    assert [e["client"] for e in events_of(tmp_path)] == [0, 1, 2, 3]
    assert numbers_check(events_of(tmp_path)).ok
    lines = Path(below / "edge-control-0.jsonl").read_text().splitlines(keepends=True)
    (below / "edge-control-0.jsonl").write_text("".join([lines[0], *lines[2:]]))
    assert not numbers_check(events_of(tmp_path)).ok


def test_completion_times_are_compared_for_the_seeds_that_have_both() -> None:
    rows = [run_row(seed=1, jct_s=900.0, predicted_jct_s=1000.0), run_row(seed=2, jct_s=None, predicted_jct_s=3000.0)]
    (one,) = merged(rows)
    assert (one["jct_s"], one["predicted_jct_s"], one["seeds"]) == (900.0, 1000.0, 2)


def test_the_report_says_what_a_client_manager_carries(capsys: pytest.CaptureFixture[str]) -> None:
    show(REPORT, [ROWS["throughput"] | {"checkin_wall_s": 0.001}], {}, console=Console(width=300))
    printed = capsys.readouterr().out
    assert "spends 1 ms of a processor on a check-in and carries 1,000 a second" in printed
    assert "answer 800 a second after 5, 1.7, 1.2 ms" in printed


def test_policies_are_compared_with_irs_seed_by_seed_measured_and_by_the_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        run_row(policy=policy, seed=seed, jct_s=jct * seed, predicted_jct_s=100.0)
        for policy, jct in (("fifo", 110.0), ("irs", 100.0))
        for seed in (1, 2)
    ]
    show(REPORT, rows, {}, console=Console(width=80))
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if line.startswith("JCT ")]
    assert " ".join(line.split()) == "JCT fifo 48 2 1.10 (1.10 to 1.10) 1.00 (1.00 to 1.00)"
