"""Ports tell OpenFlow the speed of their links."""

from __future__ import annotations

import re
from typing import Any

import pytest

from railyard.errors import ConfigError
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo

pytestmark = [pytest.mark.root, pytest.mark.beside]
SCALE = 1 / 4000


def rail() -> RailTopo:
    return RailTopo(servers=2, gpus=1, fabric="electrical", rate_mbps=100.0)


@pytest.mark.parametrize(("speed", "mbps"), [("emulated", 100), ("real", 400_000)])
def test_every_version_of_openflow_tells_the_rate_of_the_links(speed: Any, mbps: int) -> None:
    with Emulation(rail(), port_speed=speed, rate_scale=SCALE) as net:
        for version in ("11", "12", "13", "14", "15"):
            text = net["rail0"].cmd(f"ovs-ofctl -O OpenFlow{version} dump-ports-desc rail0").replace("\r", "")
            told = re.findall(r"^ (\d+)\(.*?speed: (\d+) Mbps now, (\d+) Mbps max", text, re.M | re.S)
            assert told == [(str(port), str(mbps), str(mbps)) for port in range(1, 5)], version


def test_ports_that_cannot_tell_are_refused() -> None:
    with (
        pytest.raises(ConfigError, match=r"needs the fast path.* veths"),
        Emulation(rail(), datapath="ovs", port_speed="real"),
    ):
        pass
    with pytest.raises(ConfigError, match="must be emulated, real or None, not fast"):
        Emulation(rail(), port_speed="fast")  # type: ignore[arg-type]
