from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from controllers.openflow import app
from railyard.errors import MachineError


@pytest.mark.parametrize("framework", app.PACKAGES)
def test_a_missing_framework_is_one_sentence_with_a_remedy(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app.check_installed(framework)  # both are there where tests run
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match=rf"^{framework} is not installed; scripts/setup.sh installs it$"):
        app.prepare(framework)
    monkeypatch.setattr(app, "SETUP", Path("/nowhere/setup.sh"))
    with pytest.raises(MachineError, match=rf"^{framework} is not installed; .*{framework}"):
        app.prepare(framework)
