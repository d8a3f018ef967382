from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from checkout import ROOT

from railyard import tools
from railyard.errors import MachineError


def test_the_set_up_installs_the_package_of_each_tool() -> None:
    text = (ROOT / "scripts" / "setup.sh").read_text()
    (packages,) = re.findall(r"^packages=\(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
    assert set(tools.TOOLS.values()) - set(packages.split()) == set()


def test_a_missing_tool_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railyard.tools.shutil.which", lambda name, path: None if name == "mnexec" else f"/bin/{name}")
    tools.need_tools("unshare", "setpriv")
    with pytest.raises(MachineError, match=r"^mnexec is missing; scripts/setup.sh installs it$"):
        tools.need_tools("unshare", "mnexec", "setpriv")
    monkeypatch.setattr(tools, "SETUP", Path("/nowhere/setup.sh"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match=r"^mnexec is missing; on Debian or Ubuntu: sudo apt install mininet$"):
        tools.need_tools("mnexec")
