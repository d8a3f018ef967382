"""``railyard run failover`` and ``server-fabric`` as a person types them, and plot on their folders, without root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from commands.main import main
from experiments.racks.server_fabric.row import ServerFabricRow, gain
from measure.results.results import Results
from measure.results.summary import Summary
from railyard.scale import Scale
from railyard.timeline import Event

MANIFEST: dict[str, Any] = {
    "railyard_results": 2,
    "written": "2026-11-23T12:00:00+0000",
    "seed": 0,
    "versions": {},
    "scale": asdict(Scale(1 / 800)),
    "plans": {},
    "groups": [],
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line; returns exit status, output and errors."""

    def call(*words: object) -> tuple[int, str, str]:
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:  # --help
            status = int(end.code or 0)
        return (status, *capsys.readouterr())

    return call


# ---- failover ----------------------------------------------------------------------------------------------------


def predicted(run: Any, *options: object) -> Mapping[str, list[str]]:
    """The words after the job's name in the lines of the last table of ``predict``, by fabric."""
    status, out, err = run("predict", "failover", *options)
    assert status == 0, err
    assert "MODEL ONLY" in out and "From the chip's death" in out
    _, _, table = out.partition("Step times before and after")
    found = [line.split() for line in table.splitlines()]
    return {words[0]: words[words.index("A") + 1 :] for words in found if "A" in words}


def test_predict_prints_all_fabrics_and_needs_no_root(run: Any) -> None:
    table = predicted(run)
    assert list(table) == ["photonic", "fixed", "e1", "e2", "migrate"]
    assert table["photonic"][2] == "1.00" and float(table["e1"][2]) >= 1.6 and float(table["e2"][2]) >= 1.6
    assert table["migrate"][-3:] == ["16", "of", "32"]


def test_predict_takes_the_options_and_the_file(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("fabrics: [e2]\nsteps: 20\nrandom_kills: 5\njob: {compute_s: 1.2}\n")
    slow = predicted(run, file, "--alone")
    assert list(slow) == ["e2"]
    assert float(slow["e2"][0]) == pytest.approx(3.59 + 0.6, abs=0.02)
    assert list(predicted(run, file, "--fabrics", "photonic", "--kill", "2@19.5")) == ["photonic"]
    assert list(predicted(run, "--quick", "--random-kills", "3", "--steps", "2")) == ["photonic", "e1"]


def test_the_table_of_predictions_names_ones_own_policy(run: Any) -> None:
    status, out, _ = run(
        "predict", "failover", "--fabrics", "photonic", "--policy", "docs/examples/my_spares.py:FarthestSpare"
    )
    assert status == 0 and "FarthestSpare" in out


# ---- server-fabric -----------------------------------------------------------------------------------------------


def test_the_model_of_the_server_fabric_needs_no_root(run: Any) -> None:
    status, out, err = run("predict", "server-fabric", "--study", "iperf3,epoch,recovery", "--shapes", "2x1x1")
    assert status == 0, err
    assert "MODEL ONLY" in out and "From the chip's death" in out
    lines = {words[0]: words for words in map(str.split, out.splitlines()) if words[1:2] == ["2x1x1"]}
    assert list(lines) == ["iperf3", "all-reduce", "epoch"]
    assert lines["iperf3"][3:] == ["9.927", "19.85", "2.00", "2.00"]  # two ports of 10 Gb/s, less headers
    assert float(lines["all-reduce"][5]) == pytest.approx(2.0, abs=0.01)
    assert float(lines["epoch"][3]) == pytest.approx(40.25, rel=0.01)  # the paper's, by construction


# ---- plot --------------------------------------------------------------------------------------------------------


def test_plot_draws_a_folder_of_shapes_and_says_that_a_run_was_not_faithful(run: Any, tmp_path: Path) -> None:
    manifest = {**MANIFEST, "experiment": {"experiment": "server-fabric"}, "ended": "complete"}
    results = Results.create(tmp_path / "out", manifest)
    results.write_point(0, [Event(1.0, "run", "point", 2.0, {"point": 0, "mode": "photonic", "fabric": "rack"})])
    made = [
        ServerFabricRow(measure="iperf3", shape="2x1x1", fabric=fabric, value=value, predicted=value, faithful=False)
        for fabric, value in (("electrical", 9.9), ("photonic", 19.7))
    ]
    rows = [row.to_json() for row in made]
    assert gain(rows, "iperf3", "2x1x1") == pytest.approx(1.99, abs=0.001)
    results.write_rows(Summary(rows), [])
    status, out, err = run("plot", tmp_path / "out")
    assert status == 8, err  # nothing was judged
    assert "1.99" in out and "server-fabric.png" in out
    assert (tmp_path / "out" / "figures" / "server-fabric.png").stat().st_size > 1000


def test_plot_of_a_failover_run_that_was_stopped_before_its_first_row(run: Any, tmp_path: Path) -> None:
    results = Results.create(tmp_path / "out", {**MANIFEST, "experiment": {"experiment": "failover"}})
    results.write_rows(Summary([]), [])
    results.free()
    status, out, err = run("plot", results.folder, "--quiet")
    assert status == 9 and "PARTIAL: 0 points: " in err
    assert [Path(line).name for line in out.split()] == ["trace.json", "report.html"]
