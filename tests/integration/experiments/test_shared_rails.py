"""Jobs that share rails on real packets: they come and go, lose chips, servers and ports, and the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.progress import RunProgress
from experiments.runner import Runner
from experiments.settings import validated
from experiments.shared_rails.experiment import SharedRails
from experiments.shared_rails.settings import SharedRailsSettings
from measure.results.results import Results
from measure.results.row import Row
from railyard.digits import numbers_in

pytestmark = [pytest.mark.root, pytest.mark.beside]

PATIENT = {"heartbeat_ms": 2000}
"""Only a heartbeat that comes 1.2 s late counts as a death: these tests run beside others."""


def run(out: Path, jobs: str, **values: Any) -> tuple[dict[str, Row], list[Row]]:
    """The rows of jobs by name, and those of faults and neighbours; a step takes half a second or more."""
    once = {"repeats": 1, "attempts": 1, "baseline": False, "steps": 3, "delay_ms": 100, "scale": {"time": 0.4}}
    settings = validated(SharedRailsSettings, {**once, "state_bytes": 1e7, "jobs": jobs.split(","), **values})
    experiment = SharedRails(settings)
    experiment.check()
    with Runner(experiment, out, RunProgress()) as runner:
        experiment.run(runner)
    rows = Results.open(out).rows()
    return {row["job"]: row for row in rows if "gpus" in row}, [row for row in rows if "tenant" in row]


def test_a_job_waits_until_servers_are_free(tmp_path: Path) -> None:
    jobs, _ = run(tmp_path, "2xsmoke*2,smoke*2@0.5:spread", servers=8)
    assert {row["outcome"] for row in jobs.values()} == {"done"} and {row["misdelivered"] for row in jobs.values()} == {
        0
    }
    first, second, third = (jobs[f"job{number}"] for number in (1, 2, 3))
    assert set(numbers_in(first["servers"])).isdisjoint(numbers_in(second["servers"]))
    ended = min(first["end_s"], second["end_s"])
    assert third["queue_s"] == pytest.approx(ended - 0.5, abs=0.3) and third["start_s"] >= ended
    assert all(row["steps"] == 2 and row["in_vain"] == 0 and row["restarts"] == 0 for row in jobs.values())


@pytest.mark.parametrize(
    "values",
    [
        {"kill": "5@1.15", "delay_ms": 600},  # its circuits are changing
        {"kill": "server1@1.5"},
        {"kill": "rail1:5@1.5", "detection": {"detect": ["port"], **PATIENT}},
        {"kill": "5@1.5", "controller_dies_after_ms": 100},
    ],
    ids=["chip in a change", "server", "port", "chip and controller"],
)
def test_a_spare_server_takes_over_and_the_neighbour_goes_on(tmp_path: Path, values: dict[str, Any]) -> None:
    jobs, faults = run(tmp_path, "2xsmoke", spare_servers=1, **{"detection": PATIENT, **values})
    hit, neighbour = jobs["job1"], jobs["job2"]
    assert (hit["outcome"], neighbour["outcome"]) == ("done", "done") and hit["steps"] == neighbour["steps"] == 3
    assert hit["restarts"] >= 1 and hit["lost_steps"] <= 1
    assert "controller_dies_after_ms" in values or neighbour["restarts"] == neighbour["lost_steps"] == 0
    row = next(row for row in faults if row["event"].startswith("kill"))
    assert row["state"] == "recovered" and row["replaced_by"] in (16, 17)


def test_without_a_spare_that_is_left_the_job_ends_and_the_others_go_on(tmp_path: Path) -> None:
    jobs, _ = run(tmp_path, "2xsmoke", spare_servers=1, kill="5@1.5,0@+0.5", detection=PATIENT)
    assert (jobs["job1"]["outcome"], jobs["job2"]["outcome"]) == ("stranded", "done")
    assert "cannot be replaced" in jobs["job1"]["reason"] and jobs["job2"]["restarts"] == 0
