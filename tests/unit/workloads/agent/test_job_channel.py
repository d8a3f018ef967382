"""The agent's end of the job channel against a controller that says what the test says."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from railyard.errors import ControlError, PeerLost
from workloads.agent.job_channel import HOLD_S, JobChannel
from workloads.program import Group


class Controller:
    """The other end of one channel."""

    def __init__(self, path: Path, *, outlives: bool = False) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        self.channel = JobChannel(str(path), "j", [3], 1.0, outlives=outlives)
        self.sock, _ = self.listener.accept()

    def heard(self) -> list[dict[str, Any]]:
        """What was asked."""
        return [json.loads(line) for line in self.sock.recv(1 << 16).splitlines()]

    def say(self, *answers: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Answer; what comes out at the agent."""
        self.sock.sendall(b"".join(json.dumps(answer).encode() + b"\n" for answer in answers))
        received = self.channel.receive()
        for answer in received:
            answer.check()
        return [(answer.request, answer.fields) for answer in received]


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    made = Controller(tmp_path / "channel")
    yield made
    for sock in (made.channel, made.sock, made.listener):
        sock.close()


def slot(request_id: int, number: int, index: int = 0) -> dict[str, Any]:
    """The answer for one slot."""
    return {
        "id": request_id,
        "ok": True,
        "group": "ep",
        "index": index,
        "paths": [],
        "slot_window": [number, 1.0, None, 0.0],
    }


def test_each_slot_is_an_answer_to_the_request(controller: Controller) -> None:
    controller.channel.request("request", group="ep", index=0)
    (asked,) = controller.heard()
    assert asked == {"id": 0, "op": "request", "job": "j", "rank": 3, "group": "ep", "index": 0}
    for number in range(3):
        ((request, answer),) = controller.say(slot(0, number))
        assert request == {"op": "request", "group": "ep", "index": 0} and answer["slot_window"][0] == number


def test_what_else_is_asked_meanwhile_is_answered_beside_it(controller: Controller) -> None:
    controller.channel.request("request", group="ep", index=0)
    controller.say(slot(0, 0))
    controller.channel.request("release", group="dp", index=0)
    found = controller.say({"id": 1, "ok": True}, slot(0, 1))
    assert [request["op"] for request, _ in found] == ["release", "request"]


def test_what_is_told_is_not_answered_unless_it_is_refused(controller: Controller) -> None:
    controller.channel.notify("moved", 3, group="ep", index=0, slot=0, idle=False)
    (told,) = controller.heard()
    assert told == {"id": -4, "op": "moved", "job": "j", "rank": 3, "group": "ep", "index": 0, "slot": 0, "idle": False}
    controller.sock.sendall(b'{"id":-4,"ok":false,"error":"rank 3 is not a member of group ep"}\n')
    (refusal,) = controller.channel.receive()
    with pytest.raises(ControlError, match="refused moved of group ep: rank 3 is not a member of group ep"):
        refusal.check()
    assert refusal.rank == 3, "others that share the channel go on"
    for number in ({"id": None}, {}):
        with pytest.raises(ControlError, match=r"refused a message|belongs to no request"):
            controller.say({**number, "ok": False, "error": "a request is too long"})


def test_a_slot_that_comes_after_the_release_is_nothing(controller: Controller) -> None:
    controller.channel.request("request", group="ep", index=0)
    controller.say(slot(0, 0))
    assert controller.channel.is_open(3, "ep", 0) and not controller.channel.is_open(3, "ep", 1)
    controller.channel.request("release", group="ep", index=0)
    assert not controller.channel.is_open(3, "ep", 0), "nor is one that came and has not begun"
    assert [request["op"] for request, _ in controller.say(slot(0, 1), {"id": 1, "ok": True})] == ["release"]
    controller.channel.request("request", group="ep", index=1)
    ((request, answer),) = controller.say(slot(0, 2), slot(2, 0, index=1))
    assert (request["index"], answer["slot_window"][0]) == (1, 0)


def test_a_refusal_in_mid_rotation_is_one_of_the_request(controller: Controller) -> None:
    controller.channel.request("request", group="ep", index=0)
    controller.say(slot(0, 0))
    with pytest.raises(ControlError, match="refused request of group ep: port 3 of rail0 has failed"):
        controller.say({"id": 0, "ok": False, "error": "port 3 of rail0 has failed"})


def test_a_refusal_because_another_rank_is_gone_is_that_ones_end(controller: Controller) -> None:
    controller.channel.request("request", group="ep", index=0)
    with pytest.raises(PeerLost, match="refused request of group ep: rank 2 of the group has left"):
        controller.say({"id": 0, "ok": False, "error": "rank 2 of the group has left", "kind": "PeerLost"})


def test_an_answer_to_nothing_or_that_comes_twice_is_an_error(controller: Controller) -> None:
    controller.channel.request("checkin", group="ep")
    assert controller.say({"id": 0, "ok": True})
    for number in (0, 7):
        with pytest.raises(ControlError, match="an answer that belongs to no request"):
            controller.say({"id": number, "ok": True})


def test_what_is_not_json_is_an_error(controller: Controller) -> None:
    controller.sock.sendall(b"hello\n")
    with pytest.raises(ControlError, match="something that is not JSON"):
        controller.channel.receive()


def test_a_channel_that_ends_is_an_error(controller: Controller) -> None:
    assert controller.channel.receive() == []
    controller.sock.close()
    with pytest.raises(ControlError, match="the controller closed the job channel"):
        controller.channel.receive()


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="the controller does not answer on its job channel"):
        JobChannel(str(tmp_path / "nowhere"), "j", [0], 0.1)


def granted(request_id: int, group: str, index: int) -> dict[str, Any]:
    return {"id": request_id, "ok": True, "group": group, "index": index, "paths": []}


def test_a_rank_that_outlives_its_controller_tells_the_next_one_what_it_has(tmp_path: Path) -> None:
    first = Controller(tmp_path / "channel", outlives=True)
    channel = first.channel
    for group in ("dp", "pp", "ep"):
        channel.request("request", group=group, index=0)
    first.say(granted(0, "dp", 0), granted(1, "pp", 0))
    channel.request("release", group="pp", index=0)
    first.sock.close()
    assert channel.receive() == [] and channel.lost
    channel.request("release", group="dp", index=0)
    channel.request("request", group="dp", index=1)
    channel.resume()
    assert not channel.lost
    sock, _ = first.listener.accept()
    told = [json.loads(line) for line in sock.recv(1 << 16).splitlines()]
    assert [(each["op"], each.get("group"), each.get("index")) for each in told] == [
        ("resume", None, None),
        ("request", "ep", 0),
        ("request", "dp", 1),
    ]
    assert told[0]["acknowledged"] == {"dp": 0, "pp": 0} and told[0]["held"] == []
    sock.sendall(json.dumps(granted(8, "dp", 1)).encode() + b"\n")
    (answer,) = channel.receive()
    assert answer.request == {"op": "request", "group": "dp", "index": 1}
    for open_socket in (sock, channel, first.listener):
        open_socket.close()


def test_what_is_held_is_told(tmp_path: Path) -> None:
    first = Controller(tmp_path / "channel", outlives=True)
    first.channel.request("request", group="dp", index=4)
    first.say(granted(0, "dp", 4))
    first.sock.close()
    first.channel.resume()
    sock, _ = first.listener.accept()
    (told,) = (json.loads(line) for line in sock.recv(1 << 16).splitlines())
    assert (told["acknowledged"], told["held"]) == ({"dp": 4}, [["dp", 4]])
    for open_socket in (sock, first.channel, first.listener):
        open_socket.close()


RING = Group("dp", "dp", (1, 3, 5, 7))


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Controller]:
    """A channel of ranks 1 and 3."""
    made = Controller(tmp_path / "channel")
    made.channel.close()
    made.sock.close()
    made.channel = JobChannel(str(tmp_path / "channel"), "j", [1, 3], 1.0, [RING])
    made.sock, _ = made.listener.accept()
    yield made
    for sock in (made.channel, made.sock, made.listener):
        sock.close()


def test_the_last_member_in_the_process_tells_for_all_and_all_are_answered(shared: Controller) -> None:
    channel = shared.channel
    channel.request("request", 3, group="dp", index=0)
    assert channel.due < time.monotonic() + HOLD_S
    channel.request("request", 1, group="dp", index=0)
    (asked,) = shared.heard()
    ((rank, since),) = asked.pop("before")
    assert asked == {"id": 0, "op": "request", "job": "j", "rank": 1, "group": "dp", "index": 0}
    assert rank == 3 and 0 <= since < 1 and channel.due == math.inf
    shared.sock.sendall(json.dumps(granted(0, "dp", 0)).encode() + b"\n")
    assert [answer.rank for answer in channel.receive()] == [3, 1]


def test_a_member_that_is_late_is_told_alone_after_the_others(shared: Controller) -> None:
    channel = shared.channel
    channel.request("request", 3, group="dp", index=0)
    channel.send_gathered(channel.due)
    channel.request("request", 1, group="dp", index=0)
    assert [(asked["rank"], asked.get("before")) for asked in shared.heard()] == [(3, None), (1, None)]


def test_members_of_a_group_in_slots_are_told_at_once(shared: Controller) -> None:
    channel = shared.channel
    for rank in (1, 3):
        channel.request("checkin", rank, group="dp")
    shared.say({"id": 0, "ok": True, "rotates": True})
    shared.heard()
    channel.request("release", 3, group="dp", index=0)
    (asked,) = shared.heard()
    assert asked["rank"] == 3
