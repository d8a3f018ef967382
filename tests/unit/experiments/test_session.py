"""Requests of a session to its controller, without a network."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments import session as sessions
from experiments.session import Session
from experiments.spread.machines import Cluster
from experiments.spread.part import FabricPart
from railyard.errors import ControlError, MachineError


class _Network:
    """A network whose Open vSwitch ends when ``end`` is called."""

    def __init__(self) -> None:
        self.ended = False

    def end(self) -> None:
        self.ended = True

    def check(self) -> None:
        if self.ended:
            raise MachineError("the private ovs-vswitchd ended with status -9")


class _Channel:
    """A job channel on which each request is refused, after ``before_answer``."""

    before_answer: Any = staticmethod(lambda: None)

    def __init__(self, path: Path, timeout_s: float) -> None:
        pass

    def __enter__(self) -> "_Channel":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def call(self, op: str, **fields: Any) -> None:
        self.before_answer()
        raise ControlError("rail0 lost its connection to the controller")


def _session(network: _Network) -> Session:
    session = object.__new__(Session)
    session.cluster = Cluster()
    session.cluster.here = cast(FabricPart, network)
    session.settings = SimpleNamespace(ack_timeout_s=1.0)  # type: ignore[assignment]
    running = SimpleNamespace(files=SimpleNamespace(channel=Path("channel")), process=SimpleNamespace(wait=_runs))
    session.controller = running  # type: ignore[assignment]
    return session


def _runs(patience_s: float) -> None:
    raise subprocess.TimeoutExpired("controller", patience_s)


def test_a_request_refused_since_open_vswitch_ended_names_open_vswitch(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _Network()
    monkeypatch.setattr(sessions, "ChannelClient", _Channel)
    monkeypatch.setattr(_Channel, "before_answer", staticmethod(network.end))
    with pytest.raises(MachineError, match="ovs-vswitchd ended"):
        _session(network).call("register")


def test_a_request_that_the_controller_refuses_keeps_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ChannelClient", _Channel)
    with pytest.raises(ControlError, match="rail0 lost its connection"):
        _session(_Network()).call("register")
