"""The wait for an edge run ends when something that it needs has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments.propius.processes import EdgeProcesses
from railyard.errors import MachineError


def test_an_error_of_the_network_ends_the_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EdgeProcesses, "_look", lambda processes, on_round: [0])

    def check() -> None:
        raise MachineError("the private ovs-vswitchd ended")

    processes = EdgeProcesses(cast(Any, SimpleNamespace(names=())))
    with pytest.raises(MachineError, match="ovs-vswitchd ended"):
        processes.wait(60.0, check=check)
