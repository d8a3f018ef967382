"""The controller process against a real Open vSwitch: real light, real loss."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from raw_frames import Fabric, arrivals, forget_caches, frame, running, wire

from controllers.engine.jobs import Job
from controllers.northbound.client import ChannelClient
from controllers.openflow.recovery import AWAY_S
from railyard.errors import ControlError
from topos.rails import RailTopo
from workloads.program import Group

pytestmark = pytest.mark.root

GROUPS = (
    Group("dp0", "dp", (0, 1), stage=0),
    Group("dp1", "dp", (2, 3), stage=1),
    Group("pair0", "pp", (0, 2), stage=0),
    Group("pair1", "pp", (1, 3), stage=0),
)


def rail() -> RailTopo:
    """Four GPUs on one rail."""
    return RailTopo(servers=4, gpus=1, ports=2, rate_mbps=100, fabric="ocs")


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with running(rail(), rest=True) as found:
        yield found


def together(*calls: object) -> list[object]:
    """Call all at once; their results."""
    results: list[object] = [None] * len(calls)

    def run(place: int) -> None:
        results[place] = calls[place]()  # type: ignore[operator]

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return results


@pytest.mark.timed(late_ms=100)  # a change of 150 ms within 2 s
def test_a_job_rewires_the_light(fabric: Fabric) -> None:
    with ExitStack() as stack:
        people, a, b = (stack.enter_context(ChannelClient(fabric.channel, 10)) for _ in range(3))
        people.register(Job("job", GROUPS, "on-demand", 0.1, 0.05), "opus")
        assert fabric.reaches(0, 1) == [(1, 0)] and fabric.reaches(2, 0) == [(3, 1)]
        together(
            lambda: a.call("checkin", job="job", rank=0, group="pair0"),
            lambda: b.call("checkin", job="job", rank=2, group="pair0"),
        )
        began = time.monotonic()
        paths = together(lambda: a.request("job", 0, "pair0", 0), lambda: b.request("job", 2, "pair0", 0))
        assert paths == [((0, 1, 2, 0),)] * 2
        assert time.monotonic() - began > 0.15
        assert fabric.reaches(0, 1) == [(2, 0)] and fabric.reaches(3, 0) == [(1, 1)]
        assert fabric.reaches(0, 0) == []
        a.call("release", job="job", rank=0, group="pair0", index=0)
        b.call("release", job="job", rank=2, group="pair0", index=0)
        people.call("finish", job="job")
    (event,) = (e for e in fabric.events() if e.kind == "reconfigure" and e["group"] == "pair0")
    assert 0.145 < event.seconds < 2, "the upper bound leaves room for a busy machine"


@pytest.mark.timed(late_ms=20)  # 300 ms of dark, and up to 30 % of the frames before and after
def test_loss_in_the_dark_is_counted_and_other_ports_keep_their_light(fabric: Fabric) -> None:
    with ChannelClient(fabric.channel, 10) as people, wire(fabric.net, 0, 1) as dark, wire(fabric.net, 2, 1) as lit:
        people.rewire("rail0", [(2, 3), (6, 7)], "overwrite", 0.0)
        with wire(fabric.net, 3, 0) as far:
            before = len(fabric.events())
            other = threading.Thread(target=people.rewire, args=("rail0", [(2, 5)], "update", 0.3))
            other.start()
            sent = 0
            while other.is_alive():
                dark.send(frame())
                lit.send(frame())
                sent += 1
                time.sleep(0.005)
            other.join()
            seen = arrivals(far, sent)
    assert seen == sent
    new = fabric.events()[before:]
    lost = sum(e["packets"] for e in new if e.kind == "dropped")
    assert 0.7 * sent <= lost <= sent


@pytest.mark.beside
def test_rest_shows_what_the_channel_did(fabric: Fabric) -> None:
    with ChannelClient(fabric.channel, 10) as people:
        people.rewire("rail0", [(1, 8)], "overwrite", 0.0)
    forget_caches(fabric.net)
    assert fabric.rest("/circuits/rail0") == {"switch": "rail0", "circuits": [[1, 8]]}
    assert fabric.reaches(0, 0) == [(3, 1)]
    assert not [e for e in fabric.events() if e.kind == "manual"], "the run asked for all of this itself"
    assert fabric.rest("/circuits/rail0", "PUT", {"circuits": [[2, 3]]})["circuits"] == [[1, 8], [2, 3]]
    manual, reconfigured = fabric.events()[-2:]
    assert (manual.kind, manual["what"], manual["circuits"]) == ("manual", "rewire", [[2, 3]])
    assert (reconfigured.kind, reconfigured["n"]) == ("reconfigure", manual["n"] + 1)


@pytest.mark.timed(late_ms=20)  # a change within 500 ms
def test_a_swap_without_delay_loses_next_to_nothing(fabric: Fabric) -> None:
    with ChannelClient(fabric.channel, 10) as people:
        for _ in range(5):
            people.rewire("rail0", [(2, 3)], "overwrite", 0.0)
            began = time.monotonic()
            people.rewire("rail0", [(2, 5)], "overwrite", 0.0)
            took = time.monotonic() - began
            assert fabric.reaches(0, 1) == [(2, 0)]
            assert took < 0.5


def people_see(fabric: Fabric) -> dict[str, str]:
    """The state of each port of the rail."""
    with fabric.client() as other:
        states: dict[str, str] = other.call("circuits")["switches"][0]["ports"]
    return states


@pytest.mark.beside
def test_a_switch_that_dies_in_the_dark_is_an_error_and_not_a_hang() -> None:
    with running(rail()) as fabric, ChannelClient(fabric.channel, 10) as people:
        errors: list[str] = []

        def rewire() -> None:
            try:
                people.rewire("rail0", [(2, 3)], "update", 8.0)
            except ControlError as error:
                errors.append(str(error))

        waiting = threading.Thread(target=rewire)
        waiting.start()
        end = time.monotonic() + 5
        while people_see(fabric)["3"] != "tuning":
            assert time.monotonic() < end, "it does not go dark"
        os.kill(fabric.net.yard.pids["ovs-vswitchd"], signal.SIGKILL)
        waiting.join(AWAY_S + 3)
        assert errors == ["rail0 lost its connection to the controller"]
