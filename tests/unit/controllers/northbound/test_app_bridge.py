"""An app of the user's own in the loop: what it is asked, what it is believed, and the sentence that ends a run."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from fabric_plans import rail_plan
from openflow.app_world import AppWorld
from ryu.ofproto import ofproto_v1_4 as of
from ryu.ofproto import ofproto_v1_4_parser as parser

from controllers.circuits.rotation import Cycle
from controllers.engine.jobs import Job
from controllers.northbound.app_bridge import MOST_WRONG, PATIENCE_S
from controllers.openflow import flows
from workloads.program import Group

PAIR = "pp-s0-d0-r0"


@pytest.fixture
def world() -> AppWorld:
    """Four ranks, whose job has its starting circuits."""
    world = AppWorld(rail_plan(4))
    world.register_served()
    return world


def refusal(world: AppWorld, rank: int = 0) -> str:
    answer = world.answers[rank]
    assert not answer["ok"]
    assert world.core.app.end == answer["error"]
    return str(answer["error"])


def test_an_app_is_told_all_that_happens_and_ranks_send_when_the_delay_is_over(world: AppWorld) -> None:
    hello, job, start = world.told
    assert (hello["op"], hello["id"], hello["version"]) == ("hello", 0, 1)
    assert [switch["dpid"] for switch in hello["plan"]["switches"]] == [0x10000]
    assert (job["op"], job["policy"], job["delay_s"]) == ("job", "opus", 0.02)
    assert {group["name"]: group["members"] for group in job["groups"]}[PAIR] == [0, 2]
    assert (start["job"], start["group"], start["delay_s"]) == ("j", "", 0.0)
    world.ask_pair()
    began, asked = world.clock.now, world.serve()
    assert {key: asked[key] for key in ("job", "group", "index", "members", "paths", "switch", "delay_s")} == {
        "job": "j",
        "group": PAIR,
        "index": 0,
        "members": [0, 2],
        "paths": [[0, 1, 2, 0]],
        "switch": "rail0",
        "delay_s": 0.02,
    }
    assert [2, 5] in asked["circuits"] and {2, 5} <= set(asked["ports"]) and [2, 5] not in asked["before"]
    assert world.wait(0)["paths"] == world.wait(2)["paths"] == [[0, 1, 2, 0]]
    settles = world.core.datapaths.caches
    assert 0.02 - 1e-9 <= world.clock.now - began < 0.02 + settles.settle_s + settles.revalidation_s
    (event,) = (event for event in world.events if event.kind == "reconfigure" and event["group"] == PAIR)
    assert event.t == began and "verified" not in event.fields
    world.ask("r0", op="release", job="j", rank=0, group=PAIR, index=0)
    assert "release" not in world.ops()
    world.ask("r2", op="release", job="j", rank=2, group=PAIR, index=0)
    world.ask("end", op="finish", job="j")
    assert world.told[-2:] == [
        {"op": "release", "job": "j", "group": PAIR, "index": 0},
        {"op": "done", "job": "j"},
    ]
    assert world.core.app.end == ""


def test_an_app_that_takes_longer_than_the_delay_is_waited_for(world: AppWorld) -> None:
    world.ask_pair()
    world.clock.advance(PATIENCE_S - 1)
    world.serve()
    assert world.wait(0)["ok"] and world.core.app.end == ""
    world.clock.advance(2 * PATIENCE_S)
    assert world.core.app.end == "", "its timer was for an answer that has come"


def test_an_app_that_refuses_ends_the_run_with_its_sentence(world: AppWorld) -> None:
    world.ask_pair()
    world.says(id=world.asked()["id"], refuse="the laser is cold")
    assert refusal(world, 0) == refusal(world, 2)
    assert refusal(world).endswith(f"(rail0, for {PAIR}): the laser is cold")


def test_an_app_that_never_answers_is_named_with_its_switch_and_its_request(world: AppWorld) -> None:
    world.ask_pair()
    world.clock.advance(PATIENCE_S)
    assert 0 not in world.answers
    world.clock.advance(0.03)
    number = world.asked()["id"]
    sentence = f"your controller did not answer request {number} (rail0, for {PAIR}) within 5.02 s"
    assert refusal(world) == sentence


@pytest.mark.parametrize("flow", [(), ((2, 5), (4, 7), (7, 4)), ((2, 6), (5, 2))])
def test_an_app_that_says_up_and_is_dark_is_named(world: AppWorld, flow: tuple[tuple[int, int], ...]) -> None:
    world.ask_pair()
    world.send(flow)
    world.says(id=world.asked()["id"], ok=True)
    world.until(lambda: 0 in world.answers)
    wrong = "5 to 2" if (2, 5) in flow else "2 to 5"
    assert refusal(world) == (
        f"your controller said that rail0 joins ports 2 and 5, but the switch has no flow from port {wrong}"
    )


def test_circuits_that_cannot_be_told_from_flows_are_recorded_as_not_verified(world: AppWorld) -> None:
    world.ask_pair()
    world.switches[0x10000].statistics = lambda: entry(10, {}, [parser.OFPActionGroup(7)])  # type: ignore[method-assign]
    world.says(id=world.asked()["id"], ok=True)
    assert world.wait(0)["ok"]
    (event,) = (event for event in world.events if event.kind == "reconfigure" and event["group"] == PAIR)
    assert event["verified"] is False


def test_a_switch_that_does_not_show_its_flows_is_named(world: AppWorld) -> None:
    world.ask_pair()
    world.mute = True
    world.serve()
    world.clock.advance(PATIENCE_S + 0.1)
    assert refusal(world) == "rail0 did not answer within 5 s when it was asked for its flows"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"yes", "invalid JSON"),
        (b"[]", "must be a mapping"),
        (b'{"id": 7, "up": true}', "up: there is no such key"),
        (b'{"id": "7", "ok": true}', "id: must be a whole number"),
        (b'{"id": 7}', "ok: must be true, or leave it out"),
        (b'{"id": 7, "ok": true, "refuse": "x"}', "ok: must be true, or leave it out"),
        (b'{"id": 77, "ok": true}', "id: no request 77 waits for an answer"),
        (b'{"id": 0, "ok": true}', "id: no request 0 waits for an answer"),
        (b'{"id": 1, "ok": true}', "id: no request 1 waits for an answer"),
        (b'{"id": 1, "refuse": "' + b"x" * 2000 + b'"}', "refuse: "),
    ],
)
def test_a_wrong_line_is_answered_with_what_is_wrong_and_counted(world: AppWorld, line: bytes, words: str) -> None:
    world.core.app_said(line)
    assert world.told[-1]["op"] == "error" and words in world.told[-1]["error"]
    assert world.core.app.bad_lines == 1
    world.ask_pair()
    world.serve()
    assert world.wait(0)["ok"]
    world.core.app_left()
    assert world.core.app.end == "your controller left while a job ran; 1 of its lines were wrong"


def test_an_app_that_floods_is_named(world: AppWorld) -> None:
    world.ask_pair()
    for _ in range(3):
        world.says(id=99, ok=True)
    world.clock.advance(1.0)
    for _ in range(MOST_WRONG):
        world.says(id=99, ok=True)
    assert world.core.app.end == ""
    for _ in range(2):
        world.says(id=99, ok=True)
    assert refusal(world).startswith(f"your controller floods: it sent more than {MOST_WRONG} wrong lines in a second;")


def test_an_app_that_leaves_ends_a_run_only_while_there_is_a_job() -> None:
    world = AppWorld(rail_plan(4))
    world.core.app_left()
    assert world.core.app.end == ""
    world.connect()
    world.register_served()
    world.ask_pair()
    world.core.app_left()
    number = world.asked()["id"]
    assert refusal(world) == f"your controller left in the middle of request {number} (rail0, for {PAIR})"


def test_a_job_does_not_start_without_an_app_or_against_its_will() -> None:
    world = AppWorld(rail_plan(4))
    world.core.app_left()
    world.ask("register", op="register", policy="opus", job=Job("j", (Group("pp", "pp", (0, 2)),), "x", 0.02))
    world.ask("all", op="register", policy="opus", job=Job("k", (Group("dp", "dp", (0, 1, 2, 3), stage=0),), "x", 0.02))
    assert "your controller is not there any more" in world.answers["all"]["error"]
    refusing = AppWorld(rail_plan(4))
    refusing.core.app_connected(lambda line: None)
    refusing.says(id=0, refuse="I know no rail")
    assert refusing.core.app.end == "your controller refused the fabric: I know no rail"


def test_slots_are_not_asked_of_an_app() -> None:
    world = AppWorld(rail_plan(4))
    job = Job("j", (Group("ep", "ep", (0, 1, 2, 3)),), "x", 0.02, cycle=Cycle())
    world.ask("register", op="register", policy="rotor", job=job)
    for rank in range(4):
        world.ask(f"in{rank}", op="checkin", job="j", rank=rank, group="ep")
    for rank in range(4):
        world.ask(rank, op="request", job="j", rank=rank, group="ep", index=0)
    assert "is a slot" in refusal(world)


def entry(
    priority: int, match: dict[str, Any], actions: Any, table: int = 0, kind: int = of.OFPIT_APPLY_ACTIONS
) -> bytes:
    """An entry of flow statistics as Ryu writes it; ``actions`` None: a jump to another table."""
    written = bytearray(48)
    at = 48 + parser.OFPMatch(**match).serialize(written, 48)
    if actions is None:
        parser.OFPInstructionGotoTable(3).serialize(written, at)
    elif actions:
        parser.OFPInstructionActions(kind, actions).serialize(written, at)
    struct.pack_into("!HBxIIH", written, 0, len(written), table, 1, 2, priority)
    return bytes(written)


OUT = [parser.OFPActionOutput(5)]
ELSEWHERE = [parser.OFPActionOutput(6)]


@pytest.mark.parametrize(
    ("entries", "led"),
    [
        ([], False),
        ([entry(1, {"in_port": 2}, OUT)], True),
        ([entry(1, {}, OUT)], True),
        ([entry(1, {"eth_dst": "02:00:00:00:00:05"}, OUT)], True),
        ([entry(1, {"in_port": 2}, [parser.OFPActionSetField(eth_src="02:00:00:00:00:09"), *OUT, *ELSEWHERE])], True),
        ([entry(1, {"in_port": 2}, OUT, kind=of.OFPIT_WRITE_ACTIONS)], True),
        ([entry(1, {"in_port": 3}, OUT)], False),
        ([entry(1, {"in_port": 2}, ELSEWHERE)], False),
        ([entry(1, {"in_port": 2}, OUT, table=1)], False),
        ([entry(1, {"in_port": 2}, OUT), entry(9, {"in_port": 2}, [])], False),
        ([entry(9, {"in_port": 2}, OUT), entry(1, {"in_port": 2}, [])], True),
        ([entry(1, {"in_port": 2}, OUT), entry(9, {"in_port": 2, "eth_type": 0x88CC}, [])], True),
        ([entry(0, {}, [parser.OFPActionOutput(of.OFPP_CONTROLLER)])], False),
        ([entry(0, {}, [parser.OFPActionOutput(of.OFPP_NORMAL)])], None),
        ([entry(1, {"in_port": 2}, [parser.OFPActionGroup(7)])], None),
        ([entry(1, {"in_port": 2}, None)], None),
    ],
)
def test_whether_flows_join_two_ports(entries: list[bytes], led: bool | None) -> None:
    assert flows.leads(flows.flows_in(b"".join(entries)), 2, 5) is led
