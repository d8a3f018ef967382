"""All processes of an edge run on a real network: 8 clients in 2 regions, 2 jobs of 2 rounds."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments.propius.data.clients import ClientProfile
from experiments.propius.data.jobs import Attributes, EdgeJob
from experiments.propius.data.servers import check_sum
from experiments.propius.run import EdgeProcesses, EdgeRun, TrunkTurns, Vanishing
from experiments.session import Session
from experiments.settings import PacketSettings
from railyard.errors import AgentError, ConfigError
from railyard.point_folder import events_of
from railyard.timeline import Event
from topos.edge import EdgeTopo
from topos.kernel.emulation import Emulation

pytestmark = [pytest.mark.root, pytest.mark.beside]

SIZE = 40_000
TIME = 0.02
ANY, ONE = Attributes(1, 1, 1, 1), Attributes(5, 5, 5, 5)
CLIENTS = tuple(
    ClientProfile(number, number % 2, ONE if number == 0 else ANY, 100.0, 10.0 + number, 20.0) for number in range(8)
)
JOBS = (EdgeJob("a", 2, ANY, 0, 2), EdgeJob("b", 3, ANY, 0, 2, arrival_s=5.0, over_selection=1.34))


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    with_edge = Emulation(EdgeTopo(clients=8, regions=2, client_mbps=20), openflow=None)
    with_edge.start()
    yield with_edge
    with_edge.stop()


def edge_run(net: Emulation, folder: Path, **others: Any) -> EdgeRun:
    assert net.plan.edge is not None
    fds = tuple(net.netns_fd(host) for host in net.plan.hosts)
    given: dict[str, Any] = {"jobs": JOBS, "verify": True, "time": TIME} | others
    return EdgeRun(net.plan.edge, fds, folder, given.pop("jobs"), CLIENTS, SIZE, **given)


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


def rounds_done(events: list[Event]) -> Counter[int]:
    return Counter(event["job"] for event in of(events, "round"))


@pytest.mark.parametrize(("mode", "topology"), [("authors", "tree"), ("fixed", "star")])
def test_the_jobs_finish_and_the_sums_are_right(net: Emulation, tmp_path: Path, mode: str, topology: str) -> None:
    run = edge_run(net, tmp_path, mode=mode, topology=topology, managers=2)
    told: list[int] = []
    with EdgeProcesses(run) as processes:
        began = processes.go()
        assert processes.wait(40, told.append) == []
    events = events_of(tmp_path)
    assert rounds_done(events) == {0: 2, 1: 2} and told == [1, 2, 3, 4]
    for event in of(events, "sum"):
        check_sum(event, run.seed, SIZE)
    assert len(of(events, "sum")) == 4
    first, second = of(events, "registered")
    assert (first["name"], second["name"]) == ("a", "b") and second.t - began >= 5 * TIME > first.t - began
    assert len(of(events, "request")) == len(of(events, "scheduled")) == 4 and len(of(events, "finished")) == 2
    bound = Counter((event["job"], event["round"]) for event in of(events, "bound"))
    assert bound == {(0, 0): 2, (0, 1): 2, (1, 0): 4, (1, 1): 4}
    assert all(event["bytes"] == SIZE for event in of(events, "get") + of(events, "push"))
    assert len(of(events, "get")) >= len(of(events, "train")) >= len(of(events, "push")) >= 10
    assert bool(of(events, "flush")) == (topology == "tree")
    served = of(events, "served")
    assert {event["manager"] for event in served} == {0, 1} and all(event["processor_s"] > 0 for event in served)
    assert sum(event["checkins"] for event in served) >= len(of(events, "checkin"))
    assert all(event.t >= began and event["late_s"] >= 0 for event in of(events, "train"))


def test_jobs_go_on_while_a_manager_is_killed_and_restarted(net: Emulation, tmp_path: Path) -> None:
    with EdgeProcesses(edge_run(net, tmp_path, managers=2)) as processes:
        processes.go()
        time.sleep(0.2)
        before = processes.pids["manager0"]
        killed = processes.kill("manager0")
        assert "manager0" not in processes.pids
        time.sleep(0.3)
        back = processes.restart("manager0")
        assert processes.pids["manager0"] != before
        assert processes.wait(40) == []
    events = events_of(tmp_path)
    assert rounds_done(events) == {0: 2, 1: 2}
    assert any(killed < event.t < back for event in of(events, "checkin")), "the other manager goes on meanwhile"


def test_a_client_that_vanishes_before_its_upload_costs_a_spare(net: Emulation, tmp_path: Path) -> None:
    jobs = (EdgeJob("all", 6, ANY, 0, 2, over_selection=1.34),)
    run = edge_run(net, tmp_path, jobs=jobs, vanishing=(Vanishing(3, round=0),))
    with EdgeProcesses(run) as processes:
        processes.go()
        assert processes.wait(40) == []
    events = events_of(tmp_path)
    assert [(event["client"], event["why"]) for event in of(events, "gone")] == [(3, "vanished before its upload")]
    assert not [event for event in of(events, "push") if event["client"] == 3]
    assert [event["clients"] for event in of(events, "round")] == [8, 7]
    assert all(event["attempt"] == 0 for event in of(events, "round"))


def test_a_job_whose_only_client_vanishes_starves_and_is_named(net: Emulation, tmp_path: Path) -> None:
    jobs = (EdgeJob("one", 1, ONE, 0, 1, scheduling_s=20, execution_s=40), JOBS[0])
    with EdgeProcesses(
        edge_run(net, tmp_path, jobs=jobs, policy="srsf", vanishing=(Vanishing(0, round=0),))
    ) as processes:
        processes.go()
        assert processes.wait(5) == [0]
    events = events_of(tmp_path)
    assert rounds_done(events) == {1: 2}
    assert {event["phase"] for event in of(events, "timeout") if event["job"] == 0} == {"execution", "scheduling"}


def test_a_round_whose_clients_are_killed_times_out_and_starts_again(net: Emulation, tmp_path: Path) -> None:
    jobs = (EdgeJob("all", 8, ANY, 0, 1, execution_s=60),)
    with EdgeProcesses(edge_run(net, tmp_path, jobs=jobs)) as processes:
        processes.go()
        while len(of(events_of(tmp_path), "get")) < 8:
            processes.check()
            time.sleep(0.02)
        processes.kill("clients1")
        processes.restart("clients1")
        assert processes.wait(40) == []
    (done,) = of(events_of(tmp_path), "round")
    assert done["attempt"] >= 1 and done["clients"] == 8
    assert of(events_of(tmp_path), "timeout")


def test_a_process_that_ends_by_itself_is_an_error_and_all_others_end(net: Emulation, tmp_path: Path) -> None:
    with EdgeProcesses(edge_run(net, tmp_path)) as processes:
        pids = processes.pids
        processes.go()
        os.kill(pids["leaf1"], signal.SIGKILL)
        with pytest.raises(AgentError, match="the process leaf1 of the edge run has ended by itself"):
            processes.wait(10)
    with pytest.raises(ConfigError, match="holds the events of another edge run"):
        EdgeProcesses(edge_run(net, tmp_path)).start()
    assert not [name for name, pid in pids.items() if os.path.exists(f"/proc/{pid}")]
    assert len(pids) == 8


def test_the_jobs_finish_over_an_optical_trunk_whose_regions_take_turns(tmp_path: Path) -> None:
    topo = EdgeTopo(clients=8, regions=2, client_mbps=20, trunk="ocs")
    with Session(PacketSettings(), topo) as session:
        turns = TrunkTurns(session.channel_path or "", "phase", delay_s=0.01)
        with EdgeProcesses(edge_run(session.net, tmp_path, turns=turns)) as processes:
            processes.go()
            assert processes.wait(60) == []
        events = events_of(tmp_path)
    assert rounds_done(events) == {0: 2, 1: 2}
    for event in of(events, "sum"):
        check_sum(event, 1, SIZE)
    carried, flushes = of(events, "trunk"), of(events, "flush")
    for earlier, later in pairwise(carried):
        assert earlier.end is not None and earlier.end + 0.01 <= later.t, "two circuits at once"
    assert {event["region"] for event in carried} == {0, 1}
    assert sum(event["transfers"] for event in carried) >= len(flushes) + 4
    for flush in flushes:
        assert any(c["region"] == flush["leaf"] and c.t <= (flush.end or 0) <= (c.end or 0) + 0.05 for c in carried)
