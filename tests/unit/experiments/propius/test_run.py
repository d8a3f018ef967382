"""What an edge run says about its processes, and how they start, fail and end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments.propius.data.clients import stratified
from experiments.propius.data.endpoint import Server
from experiments.propius.data.jobs import FIVE_JOBS, scaled_jobs
from experiments.propius.run import Actor, EdgeProcesses, EdgeRun, EventFile
from railyard.errors import AgentError, MachineError
from railyard.process.child import Child
from railyard.process.start import ENTRY, child_environment
from railyard.timeline import read_events
from railyard.validation import from_plain
from topos.describe import plan
from topos.edge import EdgeTopo


def edge_run(**others: Any) -> EdgeRun:
    network = plan(EdgeTopo(clients=9, regions=2))
    assert network.edge is not None
    given: dict[str, Any] = {"clients": tuple(stratified(9, 2, 1)), "managers": 2} | others
    jobs = scaled_jobs(FIVE_JOBS, 1 / 100, 2)
    return EdgeRun(network.edge, tuple(range(100, 100 + network.ranks)), Path("out"), jobs, **({"size": 1000} | given))


def test_a_process_reads_the_run_that_its_parent_has() -> None:
    run = edge_run(policy="own.py:Mine")
    read = from_plain(EdgeRun, json.loads(json.dumps(run.plain())), "an edge run")
    assert read.folder.is_absolute() and read.policy == f"{Path('own.py').absolute()}:Mine"
    assert (read.plan, read.jobs, read.clients, read.netns_fds) == (run.plan, run.jobs, run.clients, run.netns_fds)


def test_a_tree_has_leaf_servers_and_a_star_has_none() -> None:
    tree, star = edge_run(), edge_run(topology="star")
    assert tree.names == ("control", "manager0", "manager1", "root", "leaf0", "leaf1", "jobs", "clients0", "clients1")
    assert star.names == ("control", "manager0", "manager1", "root", "jobs", "clients0", "clients1")
    assert tree.data_address(1) == (tree.plan.regions[1].leaf_ip, 7100)
    assert star.data_address(1) == (star.plan.root_ip, 7100)


def test_each_process_is_on_its_hosts() -> None:
    run = edge_run()
    assert {name: run.ranks(name) for name in run.names} == {
        "root": (0,),
        "jobs": (0,),
        "control": (1,),
        "manager0": (1,),
        "manager1": (1,),
        "leaf0": (2,),
        "leaf1": (3,),
        "clients0": (4, 6, 8, 10, 12),
        "clients1": (5, 7, 9, 11),
    }


def test_the_control_plane_is_what_the_mode_and_the_policy_say() -> None:
    assert (edge_run(mode="authors").sees, edge_run(mode="fixed").sees) == ("first", "all")
    assert edge_run().manager_ports == (7001, 7002)
    assert set(edge_run(policy="static").assigned.values()) <= {job.name for job in FIVE_JOBS}
    assert edge_run().assigned == {}
    timers = edge_run(policy="random-selection", time=0.5).client_timers
    assert (timers.asks, timers.pause_s, timers.refused_s) == (0, 10.0, 1.5)


def test_a_transfer_may_take_three_times_as_long_as_at_the_slowest_rate() -> None:
    small, large = edge_run(), edge_run(size=100_000_000, time=0.5)
    assert [small.patience_s(region) for region in (0, 1, None)] == [30, 30, 30]
    trunk_s = 3 * 8e8 / (large.plan.trunk_mbps / 2 * 1e6)
    assert large.patience_s() == max(30, trunk_s)
    slowest = min(large.clients[client].rate_mbps for client in large.plan.regions[1].clients)
    assert large.patience_s(1) == pytest.approx(max(3 * 8e8 / (slowest * 1e6), trunk_s))
    star = edge_run(size=100_000_000, topology="star")
    assert star.patience_s(0) >= 3 * 8e8 / (star.plan.trunk_mbps / 9 * 1e6)


def test_what_is_derived_from_a_baseline_is_run_as_one(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from experiments.propius.control.policies import RandomSelection, Static\n"
        "class Parts(Static): pass\nclass Draws(RandomSelection): pass\n"
    )
    assert edge_run(policy=f"{own}:Parts").assigned
    assert edge_run(policy=f"{own}:Draws").client_timers.asks == 0


def test_an_error_of_the_network_ends_the_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EdgeProcesses, "_look", lambda processes, on_round: [0])

    def check() -> None:
        raise MachineError("the private ovs-vswitchd ended")

    processes = EdgeProcesses(cast(Any, SimpleNamespace(names=())))
    with pytest.raises(MachineError, match="ovs-vswitchd ended"):
        processes.wait(60.0, check=check)


ACTOR = """
from experiments.propius.run import EventFile, run_actor
from railyard.errors import AgentError
from railyard.process.parent import Parent

parent = Parent()
settings = parent.settings

async def work(orders):
    events = EventFile(settings["events"])
    orders.ready()
    await orders.go.wait()
    events.note("gone", client=3, why="told to go")
    if settings["fails"]:
        raise AgentError("the actor cannot go on")
    try:
        await orders.stop.wait()
    finally:
        events.note("finished", 5.0, 6.0, job=1)

def main():
    run_actor(parent, work)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "an_actor_of_the_tests.py").write_text(ACTOR)
    return tmp_path / "an_actor_of_the_tests.py"


def test_an_actor_goes_when_told_and_writes_each_event_at_once(module: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    with Child(module.stem, {"events": str(events), "fails": False}, (), "the actor", patience_s=5) as actor:
        assert events.read_text() == ""
        actor.tell("go")
        while not events.read_text():
            assert not actor.has_ended
        assert read_events(events)[0].fields == {"client": 3, "why": "told to go", "n": 0}
    assert [(e.source, e.kind) for e in read_events(events)] == [("edge", "finished"), ("edge", "gone")]


def test_an_actor_that_fails_says_why_in_one_sentence(
    module: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"events": str(tmp_path / "events.jsonl"), "fails": True}
    with Child(module.stem, settings, (), "the actor", patience_s=5) as actor:
        actor.tell("go")
        ended = os.waitid(os.P_PID, actor.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None and ended.si_status == 6
    assert capfd.readouterr().err == "the actor cannot go on\n"


class Notes(Actor):
    """An actor that fails at once, whose listener takes a while to close."""

    def start(self) -> None:
        self.fail(AgentError("the control process is gone"))

    def stop(self) -> None:
        self.events.note("served", checkins=0)


def test_a_stop_while_an_error_ends_an_actor_leaves_its_last_events_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    closes = Server.close

    async def run() -> None:
        closing = asyncio.Event()

        async def close(server: Server) -> None:
            closing.set()
            await asyncio.sleep(0.02)
            await closes(server)

        monkeypatch.setattr(Server, "close", close)
        serving = asyncio.create_task(Notes(EventFile(str(path))).serve(None, 0))
        await closing.wait()
        serving.cancel()
        with pytest.raises(AgentError, match="control process is gone"):
            await serving

    asyncio.run(asyncio.wait_for(run(), 4))
    assert [event.kind for event in read_events(path)] == ["served"]


def test_an_actor_ends_with_its_parent(module: Path, tmp_path: Path) -> None:
    fields = {"events": str(tmp_path / "events.jsonl"), "fails": False}
    settings = json.dumps({"op": "settings", "fields": fields}) + "\n"
    done = subprocess.run(
        [sys.executable, "-m", ENTRY, module.stem], input=settings, text=True, env=child_environment(), timeout=20
    )
    assert done.returncode == 0


def test_an_error_that_the_end_of_the_others_causes_is_not_reported(
    module: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Child(module.stem, {"events": str(tmp_path / "e"), "fails": True}, (), "the actor", patience_s=5) as actor:
        actor.tell("go")
        actor.tell("stop")
        ended = os.waitid(os.P_PID, actor.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None and ended.si_status == 0
    assert capfd.readouterr().err == ""
