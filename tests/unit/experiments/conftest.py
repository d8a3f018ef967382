from __future__ import annotations

from pathlib import Path

import pytest
from fake_rack import Rack


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    """A photonic rack with jobs A and B, all of it fake."""
    made = Rack(tmp_path / "site")
    monkeypatch.setattr("experiments.job_supervisor.JobChannel", made.connect)
    return made
