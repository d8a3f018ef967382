"""failover.py and server_fabric.py as a person types them, and plot.py on their folders: nothing here needs root."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from experiments.server_fabric.row import server_fabric_row
from measure.results.results import Results
from railyard.scale import Scale
from railyard.timeline import Event

MANIFEST: dict[str, Any] = {"railyard_results": 1, "scale": asdict(Scale(1 / 800)), "plans": {}, "groups": {}}


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )


def check_refused(done: subprocess.CompletedProcess[str], script: str, said: str) -> None:
    """Exit status 2 and one sentence."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith(f"{script}: ") and said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("script", "options"),
    [
        (
            "failover.py",
            ["--fabric", "--kill", "--random-kills", "--stages", "--predict", "--quick", "--seed", "--out"],
        ),
        ("server_fabric.py", ["--study", "--shapes", "--batch", "--quick", "--seed", "--out"]),
    ],
)
def test_help_names_every_option(script: str, options: list[str]) -> None:
    done = run(script, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert all(option in done.stdout for option in options)
    assert "sudo scripts/" in done.stdout


# ---- failover.py -------------------------------------------------------------------------------------------------


def predicted(*options: str) -> Mapping[str, list[str]]:
    """The lines of the second table of ``--predict``, by fabric."""
    done = run("failover.py", "--predict", *options)
    assert done.returncode == 0, done.stderr
    assert "MODEL ONLY: recovery from the chip's death" in done.stdout
    _, _, table = done.stdout.partition("Step times before and after")
    found = [line.split() for line in table.splitlines()]
    return {words[0]: words[1:] for words in found if len(words) > 4 and words[1] in ("A", "B")}


def test_predict_prints_all_four_fabrics_and_needs_no_root() -> None:
    table = predicted()
    assert list(table) == ["photonic", "e1", "e2", "migrate"]
    assert table["photonic"][3] == "1.00" and float(table["e1"][3]) >= 1.6 and float(table["e2"][3]) >= 1.6
    assert table["migrate"][-3:] == ["16", "of", "32"]


def test_predict_takes_the_options_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("fabrics: [e2]\nsteps: 20\nrandom_kills: 5\njob: {compute_s: 1.2}\n")
    slow = predicted(str(file), "--alone")
    assert list(slow) == ["e2"]
    assert float(slow["e2"][1]) == pytest.approx(3.59 + 0.6, abs=0.02)
    assert list(predicted(str(file), "--fabric", "photonic", "--kill", "2@19.5")) == ["photonic"]
    assert list(predicted("--quick", "--random-kills", "3", "--steps", "2")) == ["photonic", "e1"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--fabric", "optical"], "fabrics.0"),
        (["--kill", "1@10"], "1@10 is after the last step of the job, which has 10 steps"),
        (["--kill", "1@2", "--random-kills", "3"], "exclude each other"),
        (["--detect", "exit,smell"], "detection.smell: is not a key"),
        (["--policy", "best"], "policy: 'best' is not a policy"),
        (["--rate", "auto"], "scale.rate"),
        (["/nowhere/mine.yaml"], "/nowhere/mine.yaml: cannot be read"),
    ],
)
def test_failover_refuses_bad_options_in_one_sentence(options: list[str], said: str) -> None:
    check_refused(run("failover.py", "--predict", *options), "failover.py", said)


def test_a_file_that_is_wrong_is_named_with_its_key(tmp_path: Path) -> None:
    for name, script in (("a.yaml", "failover.py"), ("b.yaml", "server_fabric.py")):
        file = tmp_path / name
        file.write_text("seed: 3\nsped: 4\n")
        check_refused(run(script, file), script, f"{name}: sped: is not a key of an experiment; the keys here are")


# ---- server_fabric.py --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shapes", "3x1x1"], "shapes: must be of 2x1x1, 1x2x1, fragmented, not 3x1x1"),
        (["--rate", "1/10000000"], "port_gbps x scale.rate: must be a rate from"),
    ],
)
def test_server_fabric_refuses_bad_options_in_one_sentence(options: list[str], said: str) -> None:
    check_refused(run("server_fabric.py", *options), "server_fabric.py", said)


# ---- plot.py -----------------------------------------------------------------------------------------------------


def test_plot_draws_a_folder_of_shapes_and_says_that_a_run_was_not_faithful(tmp_path: Path) -> None:
    results = Results.create(tmp_path / "out", {**MANIFEST, "experiment": {"experiment": "server-fabric"}})
    results.add_events([Event(1.0, "run", "point", 2.0, {"point": 0, "mode": "photonic", "fabric": "rack"})])
    results.write_rows(
        [
            server_fabric_row("iperf3", "2x1x1", fabric, value, predicted=value, verdicts=[])
            for fabric, value in (("electrical", 9.9), ("photonic", 19.7))
        ]
    )
    done = run("plot.py", tmp_path / "out")
    assert done.returncode == 8, done.stderr  # nothing was judged
    assert "1.99" in done.stdout and "server-fabric.png" in done.stdout
    assert (tmp_path / "out" / "figures" / "server-fabric.png").stat().st_size > 1000
    assert "Traceback" not in done.stderr


def test_plot_of_a_failover_run_that_was_stopped_before_its_first_row(tmp_path: Path) -> None:
    results = Results.create(tmp_path / "out", {**MANIFEST, "experiment": {"experiment": "failover"}})
    results.write_rows([])
    done = run("plot.py", results.folder, "--quiet")
    assert done.returncode == 8, done.stderr
    assert [Path(line).name for line in done.stdout.split()] == ["trace.json"]
