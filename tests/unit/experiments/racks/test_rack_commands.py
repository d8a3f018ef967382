"""``railyard run failover`` and ``server-fabric`` as a person types them, without root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from commands.main import main


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
