from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from controllers.openflow import app
from railyard.errors import ConfigError, MachineError


def test_an_unknown_framework_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="framework: pox is not an OpenFlow framework; use os-ken or ryu"):
        app.check_installed("pox")


@pytest.mark.parametrize("framework", app.PACKAGES)
def test_a_missing_framework_is_one_sentence_with_a_remedy(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app.check_installed(framework)  # both are there where tests run
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match=rf"^{framework} is not installed; scripts/setup.sh installs it$"):
        app.prepare(framework)
    monkeypatch.setattr(app, "SETUP", Path("/nowhere/setup.sh"))
    with pytest.raises(MachineError, match=rf"^{framework} is not installed; .*{framework}"):
        app.prepare(framework)
