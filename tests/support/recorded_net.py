"""A Mininet net of our links and nodes whose settings were only recorded: no root, no kernel."""

from __future__ import annotations

import pytest
from mininet.net import Mininet
from mininet.topo import Topo

from topos.kernel.links import RecordedLink
from topos.kernel.nodes import RailHost, RailSwitch
from topos.kernel.wiring import number_interfaces


def recorded(monkeypatch: pytest.MonkeyPatch, topo: Topo) -> Mininet:
    """The net of ``topo``, with the indices of its interfaces."""
    monkeypatch.setattr(Mininet, "init", classmethod(lambda cls: None))
    for cls in (RailHost, RailSwitch):
        monkeypatch.setattr(cls, "setup", classmethod(lambda cls: None))
    net = Mininet(topo, host=RailHost, switch=RailSwitch, link=RecordedLink, controller=None)
    number_interfaces(net.links)
    return net
