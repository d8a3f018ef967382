from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from script_runs import called

NO_WAY = ("--width", 1, "--height", 1, "--matching", "0-6")


run = partial(called, "mesh")


def test_files_beside_the_table(tmp_path: Path) -> None:
    done = run("--json", tmp_path / "x.json", "--draw", tmp_path / "x.svg", "--matching-number", 2)
    assert done.returncode == 0, done.stderr
    assert "7 x 3 mesh" in done.stdout
    (matching,) = json.loads((tmp_path / "x.json").read_text())["matchings"]
    words = "".join(ElementTree.parse(tmp_path / "x.svg").getroot().itertext())
    assert f"matching 2: {matching['gates']} gates" in words


def test_a_picture_of_what_has_no_way(tmp_path: Path) -> None:
    done = run(*NO_WAY, "--draw", tmp_path / "x.png")
    assert done.returncode == 1, "not found, and nothing proved"
    assert "not found" in done.stdout
    assert done.stderr.startswith("railyard: no route was found for 0-6 ")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_proved_is_an_answer() -> None:
    done = run(*NO_WAY, "--exact", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["matchings"][0]["routable"] is False
    assert done.stderr.startswith("railyard: there is no route for 0-6 on a mesh of 1 x 1 (proved); ")
    assert done.stderr.count("\n") == 1
