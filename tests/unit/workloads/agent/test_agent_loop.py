"""Agents of several ranks in one process, over the loopback interface."""

from __future__ import annotations

import itertools
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents.loopback import LONGEST_WAIT_S, loopback_plan, use_loopback

from railyard.errors import AgentError
from railyard.scale import Scale
from railyard.timeline import read_events
from workloads.agent.agent import Wait
from workloads.agent.agent_loop import KILLED, AgentLoop, by_process
from workloads.agent.config import AgentConfig, AgentMode, Incarnation
from workloads.program import Collective, Compute, Group, Program

RANKS = 4
RING = Group("world", "dp", tuple(range(RANKS)))
ALL_REDUCE = Collective(1, "sum", "all_reduce", "world", 80_000, (0,))
TRAINING = Program("p", ((Compute(0, "work", 0.001), ALL_REDUCE),) * RANKS, {"world": RING})


class Process:
    """Agents of all ranks of a program in one loop, seen from their launcher."""

    def __init__(self, program: Program, folder: Path, mode: AgentMode = "native", **fields: Any) -> None:
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(LONGEST_WAIT_S)
        self.events = [folder / f"g{rank}.jsonl" for rank in range(program.ranks)]
        configs = [
            AgentConfig(rank, "job", mode, program, Scale(1.0), loopback_plan(program.ranks), str(file), **fields)
            for rank, file in enumerate(self.events)
        ]
        self.status: int | None = None
        self.news: list[dict[str, Any]] = []
        self._rest = b""
        self._thread = threading.Thread(target=self._run, args=(configs, theirs), daemon=True)
        self._thread.start()

    def _run(self, configs: list[AgentConfig], control: socket.socket) -> None:
        with control:
            self.status = AgentLoop(configs, [], control).run()

    def tell(self, **order: Any) -> None:
        self.ours.sendall(json.dumps(order).encode() + b"\n")

    def ranks(self, key: str) -> list[int]:
        """Those that have told ``key`` so far."""
        return [news["rank"] for news in self.news if key in news]

    def hears(self, condition: Callable[[], bool]) -> None:
        while not condition():
            data = self.ours.recv(1 << 16)
            assert data, self.news
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.news += map(json.loads, lines)

    def go(self) -> None:
        self.hears(lambda: len(self.ranks("ready")) == RANKS)
        self.tell(go=time.monotonic())

    def ends(self) -> int | None:
        self._thread.join(LONGEST_WAIT_S)
        assert not self._thread.is_alive()
        return self.status


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    use_loopback(monkeypatch)
    started: list[Process] = []

    def start(program: Program = TRAINING, **fields: Any) -> Process:
        started.append(Process(program, tmp_path, **{"ack_timeout_s": LONGEST_WAIT_S, **fields}))
        return started[-1]

    yield start
    for one in started:
        one.ours.close()
        one.ends()


Start = Callable[..., Process]


def test_ranks_that_share_a_process_do_the_steps_of_each_and_tell_their_part_of_the_processor(process: Start) -> None:
    ranks = process(steps=3, verify=True)
    ranks.go()
    ranks.hears(lambda: len(ranks.ranks("done")) == RANKS)
    ranks.tell(stop=True)
    assert ranks.ends() == 0 and sorted(ranks.ranks("step")) == sorted([*range(RANKS)] * 3)
    for file in ranks.events:
        events = read_events(file)
        assert [event["wrong"] for event in events if event.kind == "verified"] == [0, 0, 0]
        (used_s,) = (event["processor_s"] for event in events if event.kind == "sockets")
        assert 0 < used_s < 1
    assert len({news["rank"] for news in ranks.news if "alive" in news}) == 1, "one heartbeat for all"


def test_a_killed_rank_resets_its_connections_and_its_neighbours_live_until_they_miss_it(process: Start) -> None:
    ranks = process(steps=1_000_000)
    ranks.go()
    ranks.hears(lambda: set(ranks.ranks("step")) == set(range(RANKS)))
    ranks.tell(kill=2, halt=False)
    ranks.hears(lambda: len(ranks.ranks("exited")) == RANKS)
    ended = [(news["rank"], news["exited"]) for news in ranks.news if "exited" in news]
    assert ended[0] == (2, KILLED) and {status for _, status in ended[1:]} == {AgentError.exit_status}
    assert ranks.ends() == AgentError.exit_status
    errors = {news["rank"]: news for news in ranks.news if "error" in news}
    assert set(errors) == {0, 1, 3} and all(error["consequence"] for error in errors.values())


def test_a_rank_that_nobody_talks_to_goes_on_when_another_is_killed(process: Start) -> None:
    ranks = process(Program("p", ((Compute(0, "work", 0.001),),) * RANKS), steps=1_000_000)
    ranks.go()
    ranks.tell(kill=0, halt=False)
    ranks.hears(lambda: ranks.ranks("exited") == [0])
    steps = len(ranks.ranks("step"))
    ranks.hears(lambda: set(ranks.ranks("step")[steps:]) >= {1, 2, 3} and len(ranks.ranks("step")) > steps + 20)
    assert 0 not in ranks.ranks("step")[steps:]
    ranks.tell(stop=True)
    assert ranks.ends() == 0 and not ranks.ranks("error")


def test_one_that_is_halted_stands_still_with_its_sockets_open(process: Start) -> None:
    ranks = process(steps=1_000_000)
    ranks.go()
    ranks.tell(kill=1, halt=True)
    time.sleep(0.05)
    before = len(ranks.ranks("step"))
    ranks.ours.settimeout(0.3)
    with pytest.raises(TimeoutError):
        ranks.hears(lambda: len(ranks.ranks("step")) > before + 2 * RANKS)
    assert not ranks.ranks("error") and not ranks.ranks("exited")


def test_members_in_a_process_are_ready_in_one_message_and_one_that_ends_is_told(
    process: Start, tmp_path: Path
) -> None:
    path = tmp_path / "channel"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        ranks = process(steps=1, mode="on-demand", channel=str(path))
        sock, _ = listener.accept()
        with sock, sock.makefile("rb") as lines:
            sock.settimeout(LONGEST_WAIT_S)
            asked = json.loads(lines.readline())
            assert (asked["op"], asked["group"], asked["rank"]) == ("checkin", "world", 3)
            assert [rank for rank, _ in asked["before"]] == [0, 1, 2]
            answer = {"id": asked["id"], "ok": True, "domain": "scale-out", "asks": True, "rotates": False, "paths": []}
            sock.sendall(json.dumps(answer).encode() + b"\n")
            ranks.go()
            asked = json.loads(lines.readline())
            assert asked["op"] == "request" and len(asked["before"]) == RANKS - 1
            assert all(0 <= since < 1 for _, since in asked["before"])
            ranks.tell(kill=2, halt=False)
            assert json.loads(lines.readline()) == {"id": -3, "op": "leave", "job": "job", "rank": 2}
            refused = {"id": asked["id"], "ok": False, "kind": "PeerLost", "error": "rank 2 of the group has left"}
            sock.sendall(json.dumps(refused).encode() + b"\n")
            assert ranks.ends() == AgentError.exit_status
    ranks.hears(lambda: len(ranks.ranks("error")) == RANKS - 1)


def test_an_error_of_one_is_its_own(process: Start, tmp_path: Path) -> None:
    (tmp_path / "g1.jsonl").mkdir()
    ranks = process(Program("p", ((Compute(0, "work", 0.001),),) * RANKS), steps=3)
    ranks.go()
    ranks.hears(lambda: len(ranks.ranks("done")) == RANKS - 1 and ranks.ranks("exited") == [1])
    assert ranks.ranks("error") == [1]
    ranks.tell(stop=True)
    assert ranks.ends() == 0


def configs(count: int, **fields: Any) -> list[AgentConfig]:
    program = Program("p", ((),) * count)
    return [
        AgentConfig(rank, "j", "native", program, Scale(1.0), loopback_plan(count), "", **fields)
        for rank in range(count)
    ]


@pytest.mark.parametrize(
    "ranks, fields, sizes",
    [
        (2, {}, [1, 1]),
        (5, {}, [2, 3]),
        (9, {}, [4, 5]),
        (64, {}, [32, 32]),
        (5, {"agents_per_process": 1}, [1] * 5),
        (5, {"agents_per_process": 8}, [5]),
        (3, {"verify": True}, [1] * 3),
        (3, {"incarnation": Incarnation()}, [1] * 3),
        (3, {"script": "socket"}, [1] * 3),
        (3, {"outlives_controller": True}, [1] * 3),
        (0, {}, []),
    ],
)
def test_ranks_share_as_many_processes_as_there_are_processors(
    ranks: int, fields: dict[str, Any], sizes: list[int]
) -> None:
    assert [len(own) for own in by_process(configs(ranks, **fields), 2)] == sizes


def test_an_agent_that_is_due_at_the_same_time_again_goes_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    use_loopback(monkeypatch)
    ours, theirs = socket.socketpair()
    turns = 0

    def course(due: float) -> Wait[None]:
        nonlocal turns
        for _ in range(3):
            yield due
            turns += 1

    with ours, theirs:
        loop = AgentLoop(configs(1), [], theirs)
        (running,) = loop._running.values()
        running.course = course(time.monotonic())
        hangs = threading.Timer(LONGEST_WAIT_S, lambda: ours.shutdown(socket.SHUT_RDWR))
        hangs.start()
        assert loop.run() == 0
        hangs.cancel()
    assert turns == 3


def test_a_heartbeat_names_the_rank_that_the_loop_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    use_loopback(monkeypatch)
    ours, theirs = socket.socketpair()
    ours.settimeout(LONGEST_WAIT_S)
    beat: dict[str, Any] = {}

    def waiting() -> Wait[None]:
        yield math.inf

    def standing_still() -> Wait[None]:
        yield 0.0
        for line in itertools.islice(told, 2):
            beat.update(json.loads(line))
        ours.shutdown(socket.SHUT_RDWR)

    with ours, theirs, ours.makefile("rb") as told:
        loop = AgentLoop(configs(2, ack_timeout_s=0.1), [], theirs)
        for running, course in zip(loop._running.values(), (waiting, standing_still), strict=True):
            running.course = course()
        assert loop.run() == 0
    assert (beat["rank"], beat["at_work"]) == (0, 1)
