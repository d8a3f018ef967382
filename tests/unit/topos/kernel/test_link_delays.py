from __future__ import annotations

from typing import Any

import pytest
from mininet.net import Mininet
from mininet.topo import Topo
from recorded_net import recorded as recorded_net

from railyard.errors import ConfigError, MachineError
from topos.kernel import link_delays
from topos.kernel.link_delays import (
    LinkDelays,
    Method,
    crossing,
    forwarding_requests,
    pair_requests,
    passages,
    room_bytes,
    switch_end_requests,
)
from topos.kernel.links import Way
from topos.kernel.wiring import link_requests


class Three(Topo):  # type: ignore[misc]
    """h0 - s0 with the parameters ``access``, s0 - s1 with ``trunk``, s1 - h1 without any."""

    def build(self, access: dict[str, Any], trunk: dict[str, Any]) -> None:
        for number in range(2):
            self.addHost(f"h{number}", ip=f"10.0.0.{number + 1}/24")
            self.addSwitch(f"s{number}", dpid=f"{number + 1:016x}")
        self.addLink("h0", "s0", bw=20, **access)
        self.addLink("s0", "s1", bw=50, **trunk)
        self.addLink("s1", "h1", bw=20)


def recorded(
    monkeypatch: pytest.MonkeyPatch, access: dict[str, Any] | None = None, trunk: dict[str, Any] | None = None
) -> Mininet:
    return recorded_net(monkeypatch, Three(access=access or {}, trunk=trunk or {}))


def says(net: Mininet, method: Method) -> list[str]:
    return [request.what for request in forwarding_requests(passages(net.links), method)]


def test_only_links_with_trouble_have_a_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    net = recorded(monkeypatch, trunk={"delay": "5ms", "jitter": "1ms", "loss": 0.5})
    found = passages(net.links)
    assert [passage.sender.name for passage in found] == ["s0-eth2", "s1-eth1"]
    assert {passage.way for passage in found} == {Way(0.005, 0.001, 0.5)}
    assert [request.what for request in link_requests(net.links, {})] == [
        "making the link s0-eth1 - h0-eth0",
        "making the link s1-eth2 - h1-eth0",
    ]
    assert [request.what for request in pair_requests(found, {}, 3)] == [
        "making the link mid0a - s0-eth2",
        "making the link mid0b - s1-eth1",
    ]
    assert len(list(switch_end_requests(found))) == 2
    assert passages(recorded(monkeypatch).links) == []


def test_inner_ends_have_names_and_indices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = passages(recorded(monkeypatch, {"delay": "5ms"}, {"delay": "5ms"}).links)
    assert len({passage.enters.index for passage in found}) == len({passage.enters.name for passage in found}) == 4
    assert all((a.enters, a.leaves) == (b.leaves, b.enters) for a, b in zip(found[::2], found[1::2], strict=True))


def test_the_kernel_forwards_what_no_relay_does(monkeypatch: pytest.MonkeyPatch) -> None:
    delayed = recorded(monkeypatch, trunk={"delay": "5ms", "loss": 1})
    assert says(delayed, "relay") == [
        "preparing filters of mid0b",
        "losing 1 % of the packets of mid0b",
        "preparing filters of mid0a",
        "losing 1 % of the packets of mid0a",
    ]
    assert [what for what in says(delayed, "netem") if what.startswith(("delaying", "forwarding"))] == [
        "delaying packets of mid0b by 5000 us",
        "delaying packets of mid0a by 5000 us",
        "forwarding packets of mid0a",
        "forwarding packets of mid0b",
    ]
    assert says(recorded(monkeypatch, trunk={"loss": 1}), "none")[-2:] == [
        "forwarding packets of mid0a",
        "forwarding packets of mid0b",
    ]


def test_a_link_may_be_delayed_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    net = recorded(monkeypatch, trunk={"params1": {"delay": "5ms"}})
    assert [passage.relayed("relay") for passage in passages(net.links)] == [True, False]
    assert says(net, "relay")[-1] == "forwarding packets of mid0b"


def test_a_relay_has_room_for_what_is_in_flight() -> None:
    assert room_bytes(Way(0.5, 0.1), 100.0) == 15_000_000
    assert room_bytes(Way(0.001), 1.0) == 1 << 20
    assert room_bytes(Way(0.001), None) == 16 << 20


def test_middles_of_the_links_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    net = recorded(monkeypatch, {"delay": "5ms"}, {"delay": "5ms"})
    found = passages(net.links)
    assert {end.name for end in crossing(found, net["h0"].intfList())} == {"mid0a", "mid0b"}
    assert crossing(found, net["h1"].intfList()) == set()


@pytest.mark.parametrize(
    ("bad", "key"),
    [
        ({"delay": "5"}, "delay"),
        ({"delay": "1ms", "jitter": "2ms"}, "jitter"),
        ({"jitter": "1ms"}, "jitter"),
        ({"loss": 101}, "loss"),
        ({"loss": "much"}, "loss"),
    ],
)
def test_bad_parameters_are_named(monkeypatch: pytest.MonkeyPatch, bad: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        LinkDelays(recorded(monkeypatch, bad).links)


def test_the_method_is_tried_and_a_choice_that_the_kernel_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    links = recorded(monkeypatch, {"delay": "5ms"}).links
    monkeypatch.setattr(link_delays, "unsupported_reason", lambda: "this kernel has no netem")
    assert LinkDelays(links).method == LinkDelays(links, "relay").method == "relay"
    with pytest.raises(MachineError, match="no netem; take link_delay=relay"):
        LinkDelays(links, "netem")
    monkeypatch.setattr(link_delays, "unsupported_reason", lambda: None)
    assert LinkDelays(links).method == "netem"
    assert LinkDelays(recorded(monkeypatch, {"loss": 1}).links).method == "none"
