"""Connections between switches and controller that are reset, held up or lose a reply in mid-change.

The times with and without are printed (``pytest -s``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest
from openflow.proxy import Proxy
from raw_frames import Fabric, forget_caches, reaches, running

from controllers.engine.jobs import Job
from controllers.openflow import flows
from topos.kernel.emulation import OPENFLOW
from topos.racks import RackTopo
from topos.rails import RailTopo
from workloads.program import Group

pytestmark = [pytest.mark.root, pytest.mark.beside]

PROXY = "127.0.0.1", 7653
DELAY_S = 0.2
MOST_S = 1.0
"""How much longer a change may take for a lost connection."""


@contextmanager
def behind_proxy(topology: RackTopo | RailTopo, framework: str, datapath: str) -> Iterator[tuple[Fabric, Proxy]]:
    """A fabric whose switches reach the controller by way of a proxy."""
    with running(topology, framework, openflow=PROXY, datapath=datapath) as fabric:
        proxy = Proxy(fabric.net.yard.netns_fd, PROXY, OPENFLOW)
        try:
            fabric.controller.wait_ready()
            yield fabric, proxy
        finally:
            proxy.close()


def reset_midway(proxy: Proxy) -> None:
    """Reset all connections in the middle of the dark time."""
    time.sleep(DELAY_S / 2)
    proxy.reset()


def reset_before(proxy: Proxy) -> None:
    """Reset all connections when the order is on its way."""
    proxy.reset()


def lose_a_reply(proxy: Proxy) -> None:
    """Lose the next reply to a barrier."""
    left = [1]
    proxy.loses = lambda message: message[1] == flows.TYPE_BARRIER_REPLY and bool(left) and bool(left.pop())


def hold_up(proxy: Proxy) -> None:
    """Hold all messages up for a while."""
    proxy.passes.clear()
    time.sleep(0.3)
    proxy.passes.set()


def nothing(proxy: Proxy) -> None:
    """Disturb nothing."""


def test_a_splice_goes_on_after_a_reset() -> None:
    topology = RackTopo(torus="4x2", server="2x1", tenants="4x1@0,0", spare_servers=6)
    with behind_proxy(topology, "os-ken", "auto") as (fabric, proxy), fabric.client() as people:
        plan = fabric.net.plan
        assert plan.rack is not None
        ring = plan.rack.tenant("A").ranks
        people.register(Job("A", (Group("A", "dp", ring),), "x", DELAY_S), "lumion")
        took = {}
        for seen, disturb in enumerate((nothing, reset_midway, reset_before, lose_a_reply, hold_up)):
            dead = ring[seen % 4]
            began = time.monotonic()
            people.call("failed", rank=dead, cause="test")
            disturb(proxy)
            news = people.call("watch", job="A", seen=seen)
            took[disturb.__name__] = time.monotonic() - began
            assert news["state"] == "replaced"
            ring = news["members"]["A"]
        forget_caches(fabric.net)
        assert reaches(fabric.net, ring[seen % 4], 1) == [(ring[(seen + 1) % 4], 0)]
        assert reaches(fabric.net, dead, 1) == []
        say("splice", took)
        back = [event.seconds for event in fabric.events() if event.kind == "recovered"]
        print(f"recovered in {', '.join(f'{1e3 * s:.0f}' for s in back)} ms")
        assert 3 <= len(back) < 10, "a switch that has connected is left alone"
        assert max(took.values()) <= took["nothing"] + MOST_S


def say(what: str, took: dict[str, float]) -> None:
    print(f"\n{what}: " + ", ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in took.items()))


def test_a_rail_reconfiguration_goes_on_after_a_reset_under_ryu_on_open_vswitch_alone() -> None:
    topology = RailTopo(servers=4, gpus=1, ports=2, rate_mbps=100, fabric="ocs")
    groups = Group("dp", "dp", (0, 1), stage=0), Group("pp", "pp", (0, 2), stage=0)
    with behind_proxy(topology, "ryu", "ovs") as (fabric, proxy), ExitStack() as stack:
        clients = {rank: stack.enter_context(fabric.client()) for rank in (0, 1, 2)}
        clients[0].register(Job("job", groups, "on-demand", DELAY_S), "opus")
        took = {}
        for turn, disturb in enumerate((nothing, reset_midway, reset_before)):
            group = groups[1 - turn % 2]
            began = time.monotonic()
            asking = [Thread(target=clients[r].request, args=("job", r, group.name, turn // 2)) for r in group.members]
            for thread in asking:
                thread.start()
            disturb(proxy)
            for thread in asking:
                thread.join(20)
            took[disturb.__name__] = time.monotonic() - began
            forget_caches(fabric.net)
            assert fabric.reaches(0, 1) == [(group.members[1], 0)]
            for rank in group.members:
                clients[rank].call("release", job="job", rank=rank, group=group.name, index=turn // 2)
        say("rail reconfiguration", took)
        assert max(took.values()) <= took["nothing"] + MOST_S and took["nothing"] > DELAY_S
