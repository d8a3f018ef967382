from __future__ import annotations

from collections.abc import Callable

import pytest
from mininet.net import Mininet
from mininet.topo import Topo
from recorded_net import recorded

from railyard.errors import ConfigError
from topos.kernel import live_links, namespaces
from topos.kernel.holding import Holding, Line
from topos.kernel.link_delays import LinkDelays
from topos.kernel.links import WHOLE
from topos.kernel.live_links import LinkNames, LiveLinks
from topos.kernel.netlink import NetlinkRequest
from topos.kernel.transport import usable_transport
from topos.kernel.wiring import shaping
from topos.racks import RackTopo
from topos.rails import RailTopo


def rails(monkeypatch: pytest.MonkeyPatch, **options: object) -> Mininet:
    return recorded(monkeypatch, RailTopo(servers=3, gpus=1, fabric="electrical", rate_mbps=100, **options))


def live(net: Mininet, monkeypatch: pytest.MonkeyPatch, sent: list[str] | None = None) -> LiveLinks:
    """The links of a net that is not there; what would be asked of the kernel is written to ``sent``."""
    said = [] if sent is None else sent

    class Kernel:
        def __init__(self, netns_fd: int) -> None: ...

        def __enter__(self) -> Kernel:
            return self

        def __exit__(self, *_: object) -> None: ...

        def run(self, requests: list[NetlinkRequest]) -> None:
            said.extend(request.what for request in requests)

    monkeypatch.setattr(live_links, "Netlink", Kernel)
    monkeypatch.setattr(namespaces, "write_sysctls", said.extend)
    fds = {host.name: 0 for host in net.hosts}
    monkeypatch.setattr(namespaces, "inside", lambda fd: Kernel(fd))
    return LiveLinks(net.nameToNode, net.switches, WHOLE, fds, 1, LinkDelays(net.links), lambda host: None)


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("g1", ["g1-r0", "g1-r1", "rail0-eth3", "rail0-eth4"]),
        ("rail0:3", ["g1-r0", "rail0-eth3"]),
        ("g1-r1", ["g1-r1", "rail0-eth4"]),
        ("rail0-eth4", ["g1-r1", "rail0-eth4"]),
        ("g1-rail0", ["g1-r0", "g1-r1", "rail0-eth3", "rail0-eth4"]),
        ("rail0-g1", ["g1-r0", "g1-r1", "rail0-eth3", "rail0-eth4"]),
    ],
)
def test_names_mean_both_ends_of_links(monkeypatch: pytest.MonkeyPatch, name: str, ends: list[str]) -> None:
    net = rails(monkeypatch)
    place = LinkNames(net.nameToNode, net.switches).place(name)
    assert sorted(end.name for end in place.ends) == ends


def test_a_switch_means_all_its_links_and_a_chip_of_a_torus_its_node_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net = rails(monkeypatch)
    assert len(LinkNames(net.nameToNode, net.switches).place("rail0").ends) == 12
    torus = recorded(monkeypatch, RackTopo(torus="3x2", server="1", fabric="electrical-torus"))
    names = {end.name for end in LinkNames(torus.nameToNode, torus.switches).place("g0").ends}
    assert {end.name for end in torus["n0"].intfList()} < names


REFUSED: list[tuple[Callable[[LiveLinks], object], str]] = [
    (lambda net: net.fail("rail0:9"), 'there is no node, port or link rail0:9; did you mean "rail0:'),
    (lambda net: net.fail("g1-raill0"), 'link g1-raill0; did you mean "g1-rail0"'),
    (lambda net: net.fail("?" * 10_000), r"link \?{100}\.\.\.; name one such as g0, rail0, rail0:3 or g0-rail0"),
    (lambda net: net.restore("g1"), "g1 has not failed; restore what has: nothing has"),
    (lambda net: net.link("g1-rail0"), "g1-rail0 has 2 links; name one by its interface, such as g1-r0"),
    (lambda net: net.set("g1", rate_mbps=5), "g1 is a node; name a link of it, such as g1-r0"),
    (lambda net: net.set("g1-r0"), "give a link something to change"),
    (lambda net: net.set("g1-r0", rate_mbps=0), "rate: must be a rate from 0.01"),
    (lambda net: net.set("g1-r0", rate_mbps=float("nan")), "rate: must be a rate from 0.01"),
    (lambda net: net.set("g1-r0", delay_ms=-1), "delay: must be from 0"),
    (lambda net: net.set("g1-r0", loss_percent=101), "loss: must be from 0 to 100"),
    (lambda net: net.set("g1-r0", delay_ms=1), r"delay: g1-r0 cannot get one .* \(delay_ms=0.1\)"),
    (lambda net: net.set("g1-r0", loss_percent=1), "loss: g1-r0 cannot get one while it is up"),
    (lambda net: net.set_transport("g9", "reno"), "there is no host g9; hosts are g0, g1"),
    (lambda net: net.set_transport("g1", "dctcp"), "dctcp needs ports that mark packets"),
    (lambda net: net.set_transport("g1", "warp"), "this kernel has no congestion control warp; it has .*reno"),
]


@pytest.mark.parametrize(("act", "words"), REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[LiveLinks], object], words: str
) -> None:
    sent: list[str] = []
    net = rails(monkeypatch)
    before = {end.name: dict(end.params) for host in net.hosts for end in host.intfList()}
    with pytest.raises(ConfigError, match=words):
        act(live(net, monkeypatch, sent))
    assert not sent and before == {end.name: dict(end.params) for host in net.hosts for end in host.intfList()}


def test_a_link_that_has_failed_by_two_names_is_up_when_both_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    net = live(rails(monkeypatch), monkeypatch, sent)
    net.fail("g0")
    net.fail("rail0:1")
    with pytest.raises(ConfigError, match="g0-r0 has failed already, as rail0:1; restore it first"):
        net.fail("g0-r0")
    sent.clear()
    net.restore("g0")
    assert net.failed == ["rail0:1"]
    assert [what for what in sent if "setting" in what] == ["setting g0-r1 up", "setting rail0-eth2 up"]
    net.set("g0-r0", rate_mbps=10)
    assert "setting g0-r0 up" not in sent, "a change of a link that is down leaves it down"
    net.restore("g0-r0")
    assert "setting g0-r0 up" in sent and not net.failed


def test_a_bucket_stays_as_deep_and_a_time_out_as_long_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    net = rails(monkeypatch)
    end = net["g0"].intfList()[0]
    links = live(net, monkeypatch, sent)
    deep = end.rto_min_ms, bytes(next(iter(shaping(end))).packed)
    links.set("g0-r0", rate_mbps=10)
    assert sent.count("shaping g0-r0 to 10 Mb/s") == sent.count("shaping rail0-eth1 to 10 Mb/s") == 1
    assert sum(what.startswith("routing") for what in sent) == 1
    slow, sent[:] = end.rto_min_ms, []
    links.set("g0-r0", rate_mbps=100)
    assert bytes(next(iter(shaping(end))).packed) == deep[1] and end.rto_min_ms == slow > deep[0]
    assert not any(what.startswith("routing") for what in sent), "a route that was in use is never replaced"


def test_a_queue_between_switches_is_changed_without_its_root_and_its_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(Topo):  # type: ignore[misc]
        def build(self) -> None:
            for number in range(2):
                self.addSwitch(f"s{number}", dpid=f"{number + 1:016x}")
            self.addLink("s0", "s1", bw=50)

    end = recorded(monkeypatch, Two())["s0"].intfList()[0]
    made, changed = ([bytes(r.packed) for r in shaping(end, again=again)] for again in (False, True))
    assert changed == made[1:-1] and len(made) == 6


def test_frames_that_are_held_keep_their_time_and_later_ones_do_not_overtake_them() -> None:
    line = Line(10, 0, 8, lambda low, high: low)
    holding = Holding([line])
    assert holding.take(0, b"1234", 0)
    line.change(2, 1, 4)
    assert holding.take(0, b"5678", 1) and not holding.take(0, b"9", 1), "the room does not shrink, and is used up"
    line.change(100, 0, 12)
    assert holding.take(0, b"9", 5) and line.shortest_ns == 100
    assert list(holding.due(1000)) == [(0, 10, b"1234"), (0, 10, b"5678"), (0, 105, b"9")]


def test_any_transport_that_is_asked_for_by_none_does_not_probe_for_a_rate() -> None:
    assert usable_transport(None) in ("cubic", "reno")
