"""The scripts as a person runs them, on real packets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from script_runs import finish, rows, start

pytestmark = pytest.mark.root
ROW_KEYS = {
    "experiment", "algorithm", "collective", "n", "bytes", "fabric", "straggler_delay_s", "time_s", "after_arrival_s",
    "predicted_time_s", "algbw_gbps", "busbw_gbps", "wrong", "faithful",
}  # fmt: skip
FINISHED = (0, 8)
"""A run that ended; 8 says that this machine was too busy, which is no affair of these tests."""


@pytest.mark.beside
def test_collectives_are_right_and_the_table_is_that_of_nccl_tests(tmp_path: Path) -> None:
    sizes = ["--sizes", "4,1003,64K", "--json", str(tmp_path / "rows.json")]
    status, said, errors = finish(start(
        "collective.py", "--algorithms", "ring,stragglar", "--ranks", "4", *sizes, "--verify", "--iterations", "1",
        "--wide", "--out", str(tmp_path / "out"), "--pcap",
    ))  # fmt: skip
    assert status in FINISHED, errors
    found = rows(tmp_path / "out")
    assert len(found) == 6 and json.loads((tmp_path / "rows.json").read_text()) == found
    assert found[0].keys() >= ROW_KEYS
    assert [row["wrong"] for row in found] == [0] * 6
    assert "Verified in 6 of 6 points: 0 wrong elements." in said
    assert "#wrong" in said and "Out of bounds values : 0 OK" in said
    assert len(list((tmp_path / "out" / "captures").glob("*.pcapng"))) == 6
    assert (tmp_path / "out" / "figures" / "collective.png").exists()


@pytest.mark.timed(late_ms=20)  # four changes of 10 ms apart
def test_circuits_follow_the_schedule(tmp_path: Path) -> None:
    status, _, errors = finish(start(
        "collective.py", "--algorithms", "ring,stragglar", "--ranks", "4", "--sizes", "64K", "--fabric", "ocs",
        "--reconfiguration-delay", "10", "--verify", "--no-figures", "--out", str(tmp_path / "out"),
    ))  # fmt: skip
    assert status in FINISHED, errors
    ring, stragglar = rows(tmp_path / "out")
    assert ring["wrong"] == stragglar["wrong"] == 0
    assert ring["reconfigurations"] <= 4 < stragglar["reconfigurations"]
    assert stragglar["after_arrival_s"] > ring["after_arrival_s"] + 4 * 0.010


@pytest.mark.timed
def test_a_straggler_study_ends_with_its_break_even(tmp_path: Path) -> None:
    options = ("--ranks", "4", "--sizes", "1M", "--iterations", "1", "--no-figures", "--out", str(tmp_path / "out"))
    status, said, errors = finish(start("straggler.py", "--quick", "--straggler-delays", "40,140", *options))
    assert status in FINISHED, errors
    found = rows(tmp_path / "out")
    assert {row["algorithm"] for row in found} == {"ring", "stragglar"}
    assert "StragglAR is faster than Ring from a delay of" in said
