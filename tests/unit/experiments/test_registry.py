"""Experiments are found by name, entry point and file."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.experiment import Experiment
from experiments.registry import ENTRIES, Entry, entries, find
from railyard.errors import ConfigError

OWN = '''
from experiments.experiment import Experiment
from experiments.report import Report
from experiments.settings import Settings


class Mine(Experiment[Settings]):
    """An experiment of somebody else."""

    name = "mine"
    Settings = Settings

    def run(self, runner):
        pass

    @classmethod
    def report(cls):
        return Report(tables=lambda rows: ())
'''


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_is_the_experiment_it_says(entry: Entry) -> None:
    kind = find(entry.name)
    assert issubclass(kind, Experiment)
    experiment = kind(kind.Settings())
    assert kind.name == entry.name == experiment.identifier, "its results folder names it so that it is found again"
    assert experiment.needs_root() == entry.root
    assert kind.report().calibrated is not None, "it says what was calibrated"


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    assert find(f"{file}:Mine").name == "mine"
    with pytest.raises(ConfigError, match="has no class Other"):
        find(f"{file}:Other")
    with pytest.raises(ConfigError, match="is not an experiment; it must subclass"):
        find(f"{file}:Settings")


def test_an_entry_point_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_package.py").write_text(OWN)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[railyard.experiments]\nmine = their_package:Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find("mine").name == "mine"
    assert "mine" in [entry.name for entry in entries()]
