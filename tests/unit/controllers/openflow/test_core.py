"""The live controller against switches in memory: messages in, flows and answers out. The job channel too."""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from core_world import World
from fabric_plans import pipeline_groups, rail_plan
from fake_clock import RunningClock

from controllers.engine.actions import Action, Note, SlotEnds
from controllers.engine.jobs import Job
from controllers.northbound import channel
from controllers.northbound.client import ChannelClient
from controllers.openflow.core import LATE_S, ControllerCore, HeartbeatAlarm
from controllers.openflow.recovery import AWAY_S
from railyard.errors import ControlError, MachineError
from railyard.protocol import SlotWindow
from railyard.timeline import Event


@pytest.fixture
def world() -> World:
    made = World(rail_plan(4))
    made.join()
    made.until(made.ready.is_set)
    return made


def pair_asks(world: World, *ranks: int) -> None:
    for rank in ranks:
        world.ask(rank, op="request", job="j", rank=rank, group="pp-s0-d0-r0", index=0)


def test_a_reconfiguration_from_request_to_ack(world: World) -> None:
    world.register(0.05)
    table = world.switches[0x10000]
    assert (table.goes_to(2), table.goes_to(5)) == (3, 8)
    pair_asks(world, 0)
    world.clock.advance(0.01)
    assert 0 not in world.answers and table.goes_to(2) == 3
    pair_asks(world, 2)
    assert table.goes_to(2) is None
    assert world.wait(0) == {"ok": True, "group": "pp-s0-d0-r0", "index": 0, "paths": [[0, 1, 2, 0]]}
    assert table.goes_to(2) == 5 and table.goes_to(5) == 2
    world.until(lambda: any(e.kind == "ack" for e in world.events))
    (event,) = (e for e in world.events if e.kind == "reconfigure" and e["delay_s"])
    assert 0.045 < event.seconds < 1, "the upper bound leaves room for a busy machine"
    dropped = [e for e in world.events if e.kind == "dropped"]
    assert [(e["rail"], e["packets"], e["bytes"], e["during"]) for e in dropped] == [("rail0", 20, 2000, 2)]


def resumed(before: World, delay_s: float = 0.05) -> World:
    """Another controller of the same switches, with which the job is registered."""
    world = World(rail_plan(4), before=before)
    world.join()
    world.until(world.ready.is_set)
    world.register(delay_s, resumes=True)
    return world


def test_another_controller_leaves_the_circuits_as_they_are_and_serves_who_comes_back(world: World) -> None:
    world.register(0.05)
    pair_asks(world, 0, 2)
    assert world.wait(0)["ok"]
    another = resumed(world)
    table = another.switches[0x10000]
    assert (table.goes_to(2), table.goes_to(5), table.goes_to(4), table.goes_to(7)) == (5, 2, 7, 4)
    for rank in range(4):
        had = {"pp-s0-d0-r0": 0} if rank in (0, 2) else {}
        another.ask(f"back {rank}", op="resume", job="j", rank=rank, acknowledged=had, held=list(had.items()))
        assert another.wait(f"back {rank}") == {"ok": True}
    for rank in (0, 2):
        another.ask(f"over {rank}", op="release", job="j", rank=rank, group="pp-s0-d0-r0", index=0)
        another.ask(rank, op="request", job="j", rank=rank, group="pp-s0-d0-r0", index=1)
    assert another.wait(0)["index"] == another.wait(2)["index"] == 1
    assert not [e for e in another.events if e.kind == "reconfigure"], "what stands costs nothing"


def test_another_controller_tunes_ports_again_that_are_dark(world: World) -> None:
    world.register(0.05)
    pair_asks(world, 0, 2)
    assert world.switches[0x10000].goes_to(2) is None
    another = resumed(world)
    for rank in range(4):
        another.ask(f"back {rank}", op="resume", job="j", rank=rank, acknowledged={})
    pair_asks(another, 0, 2)
    assert another.switches[0x10000].goes_to(2) is None
    assert another.wait(0)["paths"] == [[0, 1, 2, 0]] and another.switches[0x10000].goes_to(2) == 5
    (event,) = (e for e in another.events if e.kind == "reconfigure")
    assert 0.045 < event.seconds < 1


def test_whoever_is_told_that_a_job_is_over_finds_all_its_events(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.register()
    recorded: list[str] = []
    found: list[list[str]] = []
    writing, go_on = threading.Event(), threading.Event()

    def record(event: Event) -> None:
        if event.kind == "slow":
            writing.set()
            assert go_on.wait(10)
        recorded.append(event.kind)

    monkeypatch.setattr(world.core, "_record", record)
    monkeypatch.setattr(world, "answer", lambda request_id, answer: found.append(list(recorded)))
    other = threading.Thread(target=lambda: world.core._run(lambda now: [Note("slow", now)]))
    other.start()
    assert writing.wait(10)
    end = threading.Thread(target=lambda: world.ask("end", op="finish", job="j"))
    end.start()
    end.join(0.1)
    go_on.set()
    for thread in (other, end):
        thread.join(10)
    assert found == [["slow", "finished"]]


def test_a_dark_too_short_to_read_the_ports_twice_is_not_counted(world: World) -> None:
    world.register(0.004)
    pair_asks(world, 0, 2)
    assert world.wait(0)["ok"]
    world.until(lambda: any(e.kind == "ack" for e in world.events))
    assert world.arrived == 0
    assert not [e for e in world.events if e.kind == "dropped"]


def test_an_error_that_stays_reaches_everybody_who_waits(world: World) -> None:
    world.register()
    world.switches[0x10000].refuses = True
    pair_asks(world, 0, 2)
    for rank in (0, 2):
        assert world.wait(rank)["error"] == "rail0 refused a message (BUNDLE_FAILED)"
    assert world.switches[0x10000].goes_to(2) == 3
    world.switches[0x10000].refuses = False
    world.until(lambda: not world.core.datapaths.missing())
    world.ask("then", op="rewire", switch="rail0", circuits=[[1, 4]], delay_s=0.0)
    assert world.wait("then") == {"ok": True}


def test_a_switch_that_stays_away_is_named_to_everybody_who_waits_and_is_taken_back_later(world: World) -> None:
    world.register(5.0)
    pair_asks(world, 0, 2)
    world.core.left(0x10000, world.sends[0x10000])
    began = world.clock()
    assert world.wait(0)["error"] == "rail0 lost its connection to the controller"
    assert world.clock() - began == pytest.approx(AWAY_S)
    world.ask("again", op="rewire", switch="rail0", circuits=[[1, 2]])
    assert world.wait("again")["error"] == "rail0 lost its connection to the controller"
    world.ask("job", op="register", policy="opus", job=Job("k", pipeline_groups(2, 2), "x", 0.0))
    assert world.wait("job")["error"] == "rail0 lost its connection to the controller, so no job can start"
    world.join()
    world.until(lambda: world.switches[0x10000].goes_to(2) == 3)
    world.ask("then", op="rewire", switch="rail0", circuits=[[1, 2]], delay_s=0.0)
    assert world.wait("then") == {"ok": True}


@pytest.mark.parametrize("away_s", [0.01, 0.3, 0.8])
def test_a_switch_that_is_away_for_a_while_executes_what_waits_when_it_is_back(world: World, away_s: float) -> None:
    world.register(0.5)
    asked: list[str] = []
    world.core.reconnect = lambda name, needed: asked.append(name)
    table = world.switches[0x10000]
    began = world.clock()
    pair_asks(world, 0, 2)
    world.clock.advance(0.1)
    world.core.left(0x10000, world.sends[0x10000])
    assert asked == ["rail0"], "Open vSwitch by itself would wait for a second and more"
    assert table.goes_to(2) is None
    world.clock.advance(away_s)
    world.join()
    assert world.wait(0)["ok"] and world.wait(2)["ok"]
    late_s = world.clock() - began - 0.5
    assert late_s < max(0.0, away_s - 0.4) + 0.02, "the dark time that has begun goes on"
    assert table.goes_to(2) == 5 and table.goes_to(5) == 2
    world.until(lambda: any(e.kind == "ack" for e in world.events))
    (change,) = (e for e in world.events if e.kind == "reconfigure" and e["delay_s"])
    assert change.seconds == pytest.approx(0.5 + late_s, abs=0.02)
    (left,) = (e for e in world.events if e.kind == "left")
    (back,) = (e for e in world.events if e.kind == "recovered")
    assert (left["rail"], back["rail"], back.t) == ("rail0", "rail0", left.t)
    assert away_s < back.seconds < away_s + 0.01


def test_switches_that_do_not_connect_to_a_new_controller_are_told_to() -> None:
    """Open vSwitch waits for up to eight seconds after it has found no controller for a while."""
    world, asked = World(rail_plan(4)), list[tuple[float, str]]()
    world.core.reconnect = lambda name, needed: asked.append((round(world.clock(), 2), name))
    began = world.clock()
    world.core.listening()
    world.clock.advance(1.0)
    assert asked == [(round(began + 0.25, 2), "rail0"), (round(began + 0.75, 2), "rail0")]
    world.join()
    world.until(world.ready.is_set)
    world.clock.advance(60.0)
    assert len(asked) == 2, "it has connected"


def test_a_connection_that_is_lost_again_and_again_sets_no_more_timers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.register()
    timers, later = list[float](), world.core.later

    def counted(moment: float, decide: Any) -> None:
        timers.append(moment)
        later(moment, decide)

    asked: list[str] = []
    world.core.reconnect = lambda name, needed: asked.append(name)
    monkeypatch.setattr(world.core, "later", counted)
    world.mute = True  # so that the switch stays in the same trouble
    for _ in range(30):
        world.core.left(0x10000, world.sends[0x10000])
        world.clock.advance(0.001)
        world.join()
    assert len(timers) == 3, "to have it connect again, and to give it up: if it is away, and if it does not answer"
    assert len(asked) == 30, "each time at once"
    world.core.left(0x10000, world.sends[0x10000])
    began = world.clock()
    world.ask("again", op="rewire", switch="rail0", circuits=[[1, 2]])
    assert world.wait("again")["error"] == "rail0 lost its connection to the controller"
    assert world.clock() - began == pytest.approx(AWAY_S, abs=0.01), "from the last loss on"


def test_a_late_goodbye_of_an_old_connection_is_ignored(world: World) -> None:
    old = world.sends[0x10000]
    world.join()
    world.core.left(0x10000, old)
    world.until(lambda: world.core.datapaths.complete)
    world.register()


def test_a_switch_that_never_answers_is_reported(world: World) -> None:
    world.register()
    asked: list[str] = []
    world.core.reconnect = lambda name, needed: asked.append(name)
    world.mute = True
    pair_asks(world, 0, 2)
    assert re.search(r"rail0 did not answer within [.\d]+ s$", world.wait(0)["error"])
    assert asked, "perhaps nothing passes the connection any more"


def test_a_port_that_fails_loses_its_light_and_gets_it_back(world: World) -> None:
    world.register()
    table = world.switches[0x10000]
    world.core.port_changed(0x10000, 2, False)
    world.until(lambda: table.goes_to(2) is None and table.goes_to(3) is None)
    world.ask("c", op="circuits")
    ports = world.wait("c")["switches"][0]["ports"]
    assert (ports["2"], ports["1"]) == ("failed", "tuned")
    world.ask("f", op="fault", switch="rail0", port=2, state="restored")
    world.until(lambda: table.goes_to(2) == 3)


def test_an_unknown_switch_is_left_alone(world: World) -> None:
    sent: list[bytes] = []

    def send(data: bytes) -> bool:
        sent.append(data)
        return False

    world.core.joined(0x99, send)
    assert not sent


# ---- the job channel ----------------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[World]:
    """A world that answers real sockets: its clock runs, and nothing has to be waited for."""
    clock = RunningClock()
    made = World(rail_plan(4), clock)
    made.join()
    assert made.ready.wait(5)
    yield made
    clock.stop()


@pytest.fixture
def path(served: World, tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "channel"
    listener = channel.listen(where)

    thread = threading.Thread(target=channel.serve, args=(listener, served.core), daemon=True)
    thread.start()
    yield where
    listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)
    listener.close()
    assert not thread.is_alive()


def test_a_job_over_the_channel(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with ChannelClient(path, 5) as people, ChannelClient(path, 5) as a, ChannelClient(path, 5) as b:
        people.register(Job("j", pipeline_groups(2, 2), "on-demand", 0.01), "opus")
        replies: list[Any] = []
        other = threading.Thread(target=lambda: replies.append(a.call("checkin", job="j", rank=0, group="pp-s0-d0-r0")))
        other.start()
        assert b.call("checkin", job="j", rank=2, group="pp-s0-d0-r0")["asks"] is True
        other.join(5)
        other = threading.Thread(target=lambda: replies.append(a.request("j", 0, "pp-s0-d0-r0", 0)))
        other.start()
        assert b.request("j", 2, "pp-s0-d0-r0", 0) == ((0, 1, 2, 0),)
        other.join(5)
        assert replies[1] == ((0, 1, 2, 0),)
        with pytest.raises(ControlError, match="has traffic on the ports of rail0"):
            people.rewire("rail0", [(2, 3)])
        a.call("release", job="j", rank=0, group="pp-s0-d0-r0", index=0)
        b.call("release", job="j", rank=2, group="pp-s0-d0-r0", index=0)
        people.rewire("rail0", [(2, 3)], delay_s=0.0)
        assert [2, 3] in people.call("circuits")["switches"][0]["circuits"]
        people.call("finish", job="j")


def raw_connection(path: Path) -> socket.socket:
    """A connection to the job channel that sends bytes as they are."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    connection.connect(str(path))
    return connection


def test_no_ack_is_an_error_and_not_a_go(path: Path) -> None:
    with ChannelClient(path, 5) as people, ChannelClient(path, 0.1) as a:
        people.register(Job("j", pipeline_groups(2, 2), "on-demand"), "opus")
        with pytest.raises(ControlError, match=r"did not answer request within 0.1 s"):
            a.request("j", 0, "pp-s0-d0-r0", 0)


def test_a_line_that_is_not_json_is_answered(path: Path) -> None:
    with raw_connection(path) as connection:
        connection.sendall(b"hello\n")
        assert b"must be one line of JSON" in connection.recv(1 << 16)


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="no controller listens at"):
        ChannelClient(tmp_path / "nowhere")


def test_a_dead_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    where = tmp_path / "channel"
    first = channel.listen(where)
    with pytest.raises(MachineError, match="is the channel of a running controller"):
        channel.listen(where)
    first.close()
    channel.listen(where, os.getuid()).close()


# ---- timers ------------------------------------------------------------------------------------------------------


def test_a_look_that_was_held_up_gives_heartbeats_time_to_be_read() -> None:
    class Engine:
        """Somebody is silent at 1.0."""

        looked: list[float] = []  # noqa: RUF012

        def __init__(self) -> None:
            self.liveness = self

        def next_check(self, now: float) -> float | None:
            return None if self.looked else 1.0

        def check_heartbeats(self, now: float) -> tuple[()]:
            self.looked.append(now)
            return ()

    alarms: list[tuple[float, Any]] = []
    engine = Engine()
    watch = HeartbeatAlarm(engine, lambda moment, decide: alarms.append((moment, decide)))  # type: ignore[arg-type]
    watch.arm()
    watch.arm()
    ((moment, decide),) = alarms
    assert moment == 1.0
    decide(1.0 + 10 * LATE_S)
    assert not engine.looked
    assert alarms[1][0] == pytest.approx(1.0 + 11 * LATE_S)
    alarms[1][1](2.0)
    assert engine.looked == [2.0]


def test_the_order_to_go_dark_is_given_so_much_earlier_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    core = ControllerCore(rail_plan(4, 2), lambda event: None, clock=lambda: 5.0)
    planned: list[float] = []

    def later(moment: float, decide: Callable[[float], Iterable[Action]]) -> None:
        planned.append(moment)

    monkeypatch.setattr(core, "later", later)
    for number, trips in enumerate(([0.002, 0.004, 0.003], [0.001])):
        core.datapaths.connect(core.plan.switches[number], lambda data: True).trips["darken"] = trips
    for switches in (("rail0",), ("rail1",), ("rail0", "rail1"), ("elsewhere",)):
        core._execute([SlotEnds("ep", 0, SlotWindow(0, 5.0, 6.0), 6.0, switches)], 5.0)
    assert planned == pytest.approx([5.997, 5.999, 5.997, 6.0]), "the median of each, and the slowest of several"
