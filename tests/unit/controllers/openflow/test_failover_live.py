"""The live controller when chips fail, with switches in memory: heartbeats, the splice, the news, lives, re-routes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from core_world import World
from fake_clock import FakeClock, RunningClock
from rack_player import rack, rented

from controllers.engine.jobs import Detection, Job
from controllers.northbound import channel
from controllers.northbound.client import ChannelClient
from controllers.openflow.core import LATE_S, HeartbeatAlarm
from railyard.errors import ControlError
from railyard.protocol import encode
from topos.plan import FabricPlan

PHOTONIC = rack()
TORUS = rack(fabric="electrical-torus", torus="4x4", reserve="2x2@2,2")
RACKS = rack(fabric="migrate", torus="4x2")


class Agent:
    """One connection that speaks for one rank of one job."""

    trusted = True

    def __init__(self, world: World, rank: int, job: str = "A") -> None:
        self.world, self.rank, self.job = world, rank, job
        self.answers: list[dict[str, Any]] = []

    def answer(self, request_id: object, answer: bytes) -> None:
        self.answers.append(json.loads(answer))

    def beat(self) -> None:
        self.world.core.handle(encode(None, "alive", job=self.job, rank=self.rank), self)

    def check_in(self) -> None:
        self.world.core.handle(encode(1, "checkin", rank=self.rank, group=self.job), self)

    def close(self) -> None:
        self.world.core.closed(self)


def running(
    plan: FabricPlan, policy: str = "lumion", delay_s: float = 0.0, clock: FakeClock | None = None, **detection: Any
) -> World:
    """A world with the jobs of tenants A and B."""
    world = World(plan, clock)
    for switch in plan.switches:
        world.join(switch.dpid)
    world.until(world.ready.is_set)
    for tenant in "AB":
        detected = Detection(**detection) if detection else None
        job = Job(tenant, rented(plan, tenant).groups, "x", delay_s, detection=detected)
        world.ask(tenant, op="register", policy=policy, job=job)
        assert world.wait(tenant) == {"ok": True}
    return world


def light(world: World, rank: int, lane: int) -> tuple[int, int] | None:
    """Where light that a chip sends really comes out, by the flows of the switch."""
    (switch,) = world.plan.network("rail")
    out = world.switches[switch.dpid].goes_to(switch.port(rank, lane).number)
    return next(((p.rank, p.lane) for p in switch.ports if p.number == out), None)


def kinds(world: World) -> list[str]:
    return [event.kind for event in world.events if event.kind in ("failed", "replaced", "stranded")]


def test_a_reported_failure_is_spliced_and_the_watcher_is_told() -> None:
    world = running(PHOTONIC, delay_s=0.03)
    world.ask("news", op="watch", job="A", seen=0)
    world.ask("told", op="failed", rank=1, cause="smoke")
    assert world.wait("told") == {"ok": True}
    assert light(world, 0, 1) is None and light(world, 1, 1) is None and light(world, 4, 1) is not None
    assert "news" not in world.answers
    news = world.wait("news")
    assert news == {
        "ok": True,
        "number": 1,
        "state": "replaced",
        "dead": [1],
        "replacements": [[1, 8]],
        "members": {"A": [0, 8, 2, 3]},
        "reason": "",
    }
    assert light(world, 0, 1) == (8, 0) and light(world, 8, 1) == (2, 0)
    world.until(lambda: kinds(world) == ["failed", "replaced"])
    (event,) = (e for e in world.events if e.kind == "replaced")
    assert 0.03 <= event.seconds < 1, "the upper bound leaves room for a busy machine"
    world.ask("late", op="watch", job="A", seen=0)
    assert world.wait("late") == news
    world.ask("jobs", op="jobs")
    job = world.wait("jobs")["jobs"][0]
    assert (job["state"], job["changes"], job["dead"], job["members"]) == ("running", 1, [1], [0, 8, 2, 3])


def test_an_agent_that_falls_silent_is_replaced_at_the_moment_its_patience_is_over() -> None:
    world = running(PHOTONIC, heartbeat_s=0.05, misses=3)
    agents = [Agent(world, rank) for rank in (0, 1, 2, 3)]
    silent_from = world.clock.now + 0.2

    def beat() -> None:
        for agent in agents:
            if agent.rank != 2 or world.clock.now < silent_from:
                agent.beat()
        world.clock.after(0.05, beat)

    beat()
    world.until(lambda: "replaced" in kinds(world))
    (failed,) = (e for e in world.events if e.kind == "failed")
    assert failed["rank"] == 2 and failed["cause"] == "its agent missed 3 heartbeats of 0.05 s"
    assert failed.t - failed["heard"] == pytest.approx(0.15)
    assert not any(agent.answers for agent in agents), "heartbeats are not answered"


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


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"rank": 0},
        {"job": "A", "rank": -1},
        {"job": "A", "rank": True},
        {"job": "nobody", "rank": 0},
        {"job": "A", "rank": 4},
    ],
)
def test_a_wrong_heartbeat_is_not_answered_and_means_nothing(message: dict[str, Any]) -> None:
    world = running(PHOTONIC, heartbeat_s=0.01)
    world.core.handle(encode(None, "alive", **message), world)
    assert world.core.engine.liveness.next_check() is None
    assert set(world.answers) == {"A", "B"}


def test_the_end_of_a_connection_is_a_failure_once_in_a_life_and_old_ones_mean_nothing() -> None:
    world = running(PHOTONIC, exit=True, heartbeat_s=0.1)
    old = [Agent(world, rank) for rank in (0, 1, 2, 3)]
    for agent in old:
        agent.check_in()
        agent.beat()
    old[1].close()
    world.until(lambda: kinds(world) == ["failed", "replaced"])
    assert next(e for e in world.events if e.kind == "failed")["cause"] == "its agent's connection ended"
    old[0].close()
    world.ask("restart", op="restart", job="A")
    assert world.wait("restart") == {"ok": True, "number": 1, "state": "running", "members": {"A": [0, 8, 2, 3]}}
    old[2].beat()
    old[2].check_in()
    assert "belongs to an earlier incarnation of the job of rank 2; open a new one" in old[2].answers[-1]["error"]
    assert world.core.engine.liveness.next_check() is None, "nobody has said yet that it lives"
    new = [Agent(world, rank) for rank in (0, 8, 2, 3)]
    for agent in new:
        agent.beat()
        agent.check_in()
    for agent in old:
        agent.close()
    assert all(agent.answers[0]["ok"] for agent in new)
    assert kinds(world) == ["failed", "replaced"], "late farewells of the old life are no failures"
    world.ask("end", op="finish", job="A")
    for agent in new:
        agent.close()
    world.clock.advance(0.35)
    assert kinds(world) == ["failed", "replaced"], "nor is the end of a job that was finished"


def test_a_port_that_loses_its_carrier_takes_its_chip_with_it_if_the_job_says_so() -> None:
    world = running(PHOTONIC, port=True)
    (switch,) = PHOTONIC.network("rail")
    for lane in range(3):
        world.core.port_changed(switch.dpid, switch.port(2, lane).number, False)
    world.until(lambda: kinds(world) == ["failed", "replaced"])
    assert light(world, 1, 1) == (8, 0) and light(world, 8, 1) == (3, 0)


def test_a_switch_that_refuses_or_vanishes_strands_the_job_and_says_so() -> None:
    world = running(PHOTONIC)
    (switch,) = PHOTONIC.network("rail")
    world.switches[switch.dpid].refuses = True
    world.ask("news", op="watch", job="A", seen=0)
    world.ask("f", op="failed", rank=0, cause="x")
    news = world.wait("news")
    assert (news["state"], news["reason"]) == ("stranded", "rack0 refused a message (BUNDLE_FAILED)")
    world.switches[switch.dpid].refuses = False
    world.until(lambda: not world.core.datapaths.missing())
    world.ask("news B", op="watch", job="B", seen=0)
    world.mute = True
    world.ask("f", op="failed", rank=4, cause="x")
    world.core.left(switch.dpid, world.sends[switch.dpid])
    assert world.wait("news B")["reason"] == "rack0 lost its connection to the controller"


def test_a_watcher_of_a_job_that_is_finished_is_told() -> None:
    world = running(PHOTONIC)
    world.ask("news", op="watch", job="A", seen=0)
    world.ask("end", op="finish", job="A")
    assert world.wait("news")["error"] == "job A was finished"


def registering(detection: object) -> dict[str, Any]:
    job = {"name": "j", "mode": "m", "groups": [], "detection": detection}
    return {"op": "register", "policy": "lumion", "job": job}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"op": "watch", "job": "C"}, "job C is not registered; registered are: A, B"),
        ({"op": "watch", "job": "A", "seen": -1}, "seen: must be at least 0, not -1"),
        ({"op": "restart", "job": "C"}, "job C is not registered"),
        ({"op": "failed", "rank": 10}, "there is no rank 10; the fabric's ranks are 0 to 9"),
        ({"op": "failed", "rank": "x"}, "rank: must be a whole number, not 'x'"),
        ({"op": "failed", "rank": 1, "cause": ""}, "cause: must have at least 1 character, not ''"),
        (registering(3), "job.detection: must be a mapping of keys, not 3"),
        (registering({"beat": 1}), "job.detection.beat: there is no such key; the keys here are exit, "),
        (registering({"misses": 0}), "job.detection.misses: must be at least 1, not 0"),
        (registering({"exit": 1}), "job.detection.exit: must be true or false, not 1"),
        (registering({"heartbeat_s": -1}), "job.detection.heartbeat_s: must be at least 0"),
    ],
)
def test_wrong_messages_are_named(message: dict[str, Any], reason: str) -> None:
    world = running(PHOTONIC)
    world.ask("x", **message)
    assert reason in world.wait("x")["error"]


def test_news_over_the_job_channel(tmp_path: Path) -> None:
    clock = RunningClock()
    world = running(PHOTONIC, clock=clock)
    listener = channel.listen(tmp_path / "channel")

    def serve() -> None:
        connection = channel.ChannelConnection(listener.accept()[0], world.core)
        while connection.read():
            pass
        connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with ChannelClient(tmp_path / "channel", 5) as client:
        client._socket.sendall(b'{"op":"alive","job":"A","rank":0}\n')
        client.call("failed", rank=0, cause="told")
        assert client.call("watch", job="A", seen=0)["replacements"] == [[0, 8]]
        with pytest.raises(ControlError, match="job Z is not registered"):
            client.call("watch", job="Z")
    thread.join(5)
    listener.close()
    clock.stop()


# ---- electrical ----------------------------------------------------------------------------------------------------


def way(world: World, a: int, b: int) -> list[int] | None:
    """The chips that packets from ``a`` to ``b`` pass, by the flows of the switches; None if they get lost."""
    switches = {s.name: s for s in world.plan.network("rail")}
    at = {s.ports[0].rank: s.name for s in switches.values()}
    far = {(link.a, link.a_port): link.b for link in world.plan.links}
    far |= {(link.b, link.b_port): link.a for link in world.plan.links}
    here, passed = at[a], [a]
    mac = switches[at[b]].ports[0].mac
    while here != at[b]:
        out = world.switches[switches[here].dpid].goes_to(1, mac)
        if out is None or len(passed) > len(at):
            return None
        here = far[here, out]
        passed.append(switches[here].ports[0].rank)
    return passed


def test_an_electrical_torus_is_filled_with_routes_and_led_round_the_dead() -> None:
    world = running(TORUS, policy="torus")
    ranks = TORUS.rack.tenant("A").ranks if TORUS.rack else ()
    assert way(world, 0, 15) is not None
    dead = ranks[1]
    world.ask("news", op="watch", job="A", seen=0)
    world.ask("f", op="failed", rank=dead, cause="x")
    news = world.wait("news")
    members = news["members"]["A"]
    assert news["state"] == "replaced" and dead not in members
    for a in members:
        for b in members:
            passed = way(world, a, b)
            assert passed is not None and dead not in passed
    assert way(world, members[0], dead) is None
    assert way(world, dead, members[0]) is None, "what the dead chip's own router held is gone too"
    assert kinds(world) == ["failed", "replaced"]


def test_a_dead_chip_s_router_that_is_gone_keeps_nobody_waiting() -> None:
    world = running(TORUS, policy="torus")
    node = next(s for s in TORUS.switches if s.name == "n1")
    world.core.left(node.dpid, world.sends[node.dpid])
    world.ask("news", op="watch", job="A", seen=0)
    world.ask("f", op="failed", rank=1, cause="x")
    assert world.wait("news")["state"] == "replaced"


def test_a_living_chip_s_router_that_is_gone_strands_the_job() -> None:
    world = running(TORUS, policy="torus")
    node = next(s for s in TORUS.switches if s.name == "n2")
    world.core.left(node.dpid, world.sends[node.dpid])
    world.ask("news", op="watch", job="A", seen=0)
    world.ask("f", op="failed", rank=1, cause="x")
    assert world.wait("news")["reason"] == "n2 lost its connection to the controller"


def test_migration_takes_its_delay_and_the_second_rack_has_no_routes_before() -> None:
    world = running(RACKS, policy="migrate", delay_s=0.15)
    assert way(world, 0, 3) is not None and way(world, 8, 11) is None
    began = world.clock.now
    world.ask("news", op="watch", job="A", seen=0)
    world.ask("f", op="failed", rank=1, cause="x")
    world.until(lambda: way(world, 0, 1) is None)
    assert way(world, 8, 11) is None
    news = world.wait("news")
    assert 0.15 <= world.clock.now - began < 1
    assert RACKS.rack is not None
    assert news["members"]["A"] == [rank + 8 for rank in RACKS.rack.tenant("A").ranks]
    assert way(world, 8, 11) is not None and way(world, 4, 7) is not None
