from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for pretended_rack

from pretended_rack import Rack


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    """A photonic rack with jobs A and B, all of it pretended."""
    made = Rack(tmp_path / "site")
    monkeypatch.setattr("railyard.racks.supervisor.JobChannel", made.connect)
    return made
