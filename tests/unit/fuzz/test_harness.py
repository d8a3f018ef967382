"""The fuzzing itself: what it must find it finds, and says how to see it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.__main__ import main
from fuzz.mutation import MOST_BYTES, mutated, mutated_tree
from fuzz.target import Target

from railyard.checkout import ROOT

BROKEN = """
import os, sys
from pathlib import Path
from fuzz.campaign import Campaign
from fuzz.target import Target
from railyard.errors import ConfigError

def read(data, folder):
    if data == b"error":
        raise KeyError("key")
    if data == b"hang":
        while True: pass
    if data == b"memory":
        bytearray(600 << 20)
    if data == b"die":
        os.abort()
    if data == b"refused":
        raise ConfigError("no")
    (folder / "file").write_bytes(data)

seeds = [b"good", b"error", b"hang", b"refused", b"memory", b"die", b"last"]
campaign = Campaign([Target("own", read, seeds)], len(seeds), 1, 2, Path(sys.argv[1]))
for failure in campaign.run():
    print(failure.index, failure.how, *failure.where, sep=" | ")
print(campaign.tallies[0].done)
"""


def fuzz(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'support'}:{ROOT}"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def test_errors_hangs_much_memory_and_death_are_found_and_the_input_is_kept(tmp_path: Path) -> None:
    done = fuzz("-c", BROKEN, str(tmp_path / "kept"))
    assert done.returncode == 0, done.stderr
    *lines, count = done.stdout.splitlines()
    assert count == "7"
    found = {int(number): how for number, how, *_ in (line.split(" | ") for line in lines)}
    assert found == {
        1: "raised an error that it does not document",
        2: "used 2 s of processor time",
        4: "raised an error that it does not document",
        5: "died of SIGABRT",
    }
    assert {file.read_bytes() for file in (tmp_path / "kept").iterdir()} == {b"error", b"hang", b"memory", b"die"}
    assert "KeyError: 'key'" in done.stdout and "MemoryError" in done.stdout


def test_an_input_depends_on_seed_target_and_number_alone() -> None:
    target = Target("own", lambda data, folder: None, [b"a: 1\nb: [2, 3]", b"c"], words=[b"word"])
    inputs = [target.input(1, index) for index in range(200)]
    assert inputs[:2] == [b"a: 1\nb: [2, 3]", b"c"]
    assert inputs == [target.input(1, index) for index in range(200)]
    assert inputs[2:] != [target.input(2, index) for index in range(2, 200)]
    assert len(set(inputs)) > 120 and max(map(len, inputs)) <= MOST_BYTES


@pytest.mark.parametrize("seed", range(5))
def test_changes_make_something_else(seed: int) -> None:
    from random import Random

    chance = Random(seed)
    tree = {"a": [1, {"b": "x"}], "c": 0.5}
    assert sum(mutated_tree(chance, tree) != tree for _ in range(50)) > 40
    assert sum(mutated(chance, b"number 12 of 7", [b"other"], [b"word"]) != b"number 12 of 7" for _ in range(50)) > 40


def test_an_input_is_read_again_by_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = fuzz("-m", "fuzz", "--target", "gaps", "--seed", "1", "--index", "0")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "taken as documented"), done.stderr
    (tmp_path / "own").write_bytes(b"1 2 3")
    assert main(["--target", "gaps", "--file", str(tmp_path / "own")]) == 0
    assert capsys.readouterr().out.splitlines() == ["5 bytes: b'1 2 3'", "taken as documented"]
    with pytest.raises(SystemExit, match="2"):
        main(["--target", "nothing"])
