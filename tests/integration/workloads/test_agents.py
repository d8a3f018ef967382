"""Agents on real namespaces and real TCP: numbers really added, and every bad end one sentence."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from agents import hanging_launcher

from railyard.errors import AgentError
from railyard.scale import Scale
from railyard.timeline import Event, read_events
from topos.kernel import namespaces
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher, AgentTeam
from workloads.agent.transport.connections import TCP_PORT
from workloads.agent.transport.message import Header
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.rank.flows import Flow
from workloads.rank.paths import wired_paths

pytestmark = [pytest.mark.root, pytest.mark.beside]

RANKS = 4
SIZE = 400_001
GROUPS = {
    "dp": Group("dp", "dp", (0, 1, 2, 3)),
    "left": Group("left", "pp", (0, 1), stage=0),
    "pair": Group("pair", "dp", (2, 3), stage=0),
}


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    with Emulation(RailTopo(servers=RANKS, gpus=1, fabric="electrical", rate_mbps=200), openflow=None) as running:
        yield running


@pytest.fixture(scope="module")
def launcher() -> Iterator[AgentLauncher]:
    with AgentLauncher.start() as running:
        yield running


def every_kind(rank: int) -> tuple[Operation, ...]:
    """All collectives, crossing sends and a group of two, with compute between them."""
    operations: list[Operation] = [Compute(0, "forward", 0.01)]

    def add(make: Any, *fields: Any, deps: tuple[int, ...]) -> None:
        operations.append(make(len(operations), f"op{len(operations)}", *fields, deps))

    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        add(Collective, kind, "dp", SIZE, deps=(len(operations) - 1,))
    before = (len(operations) - 1,)
    if rank in (0, 1):
        add(Send, "left", 1 - rank, SIZE, deps=before)
        add(Recv, "left", 1 - rank, SIZE, deps=before)
    else:
        add(Collective, "all_reduce", "pair", SIZE, deps=before)
    operations.append(Compute(len(operations), "backward", 0.01, before))
    return tuple(operations)


PROGRAM = Program("every-kind", tuple(every_kind(rank) for rank in range(RANKS)), GROUPS)


@contextmanager
def team_of(
    net: Emulation, launcher: AgentLauncher, folder: Path, program: Program = PROGRAM, **fields: Any
) -> Iterator[AgentTeam]:
    values: dict[str, Any] = {"mode": "native", "verify": True, "steps": 2, "scale": Scale(1.0), **fields}
    configs = [
        AgentConfig(rank=r, job="job", program=program, plan=net.plan, events=str(folder / f"agent{r}.jsonl"), **values)
        for r in range(RANKS)
    ]
    team = launcher.launch(configs, [net.netns_fd(f"g{r}") for r in range(RANKS)])
    try:
        yield team
    finally:
        team.stop()


def until(launcher: AgentLauncher, condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Listen to the agents until ``condition`` holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert launcher.listen(end - time.monotonic()), f"not within {seconds} s"


def events_in(folder: Path) -> list[Event]:
    return [event for file in sorted(folder.glob("agent*.jsonl")) for event in read_events(file)]


def test_every_sum_is_right_on_every_rank(net: Emulation, launcher: AgentLauncher, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    with team_of(net, launcher, tmp_path) as team:
        team.wait_ready(10)
        team.go(time.monotonic() + 0.02)
        team.wait_done(20, on_progress=lambda rank, done: steps.append((rank, done)))
    events = events_in(tmp_path)
    verified = [e for e in events if e.kind == "verified"]
    assert len(verified) == 2 * (RANKS * 3 + 4), "every collective on every rank, and every receive"
    assert all(e["wrong"] == 0 for e in verified)
    assert sorted(steps) == [(rank, done) for rank in range(RANKS) for done in (1, 2)]
    assert sum(e.kind == "step" for e in events) == 2 * RANKS
    ring = next(e for e in events if e.kind == "communicate" and e["op_kind"] == "all_reduce" and e["rank"] == 0)
    assert ring["sent_bytes"] == pytest.approx(1.5 * SIZE, rel=0.01), "2 (n - 1) / n of the buffer"
    assert ring["lanes"] == [0, 1]
    late = [e["late_s"] for e in events if e.kind == "compute"]
    assert len(late) == 2 * 2 * RANKS and min(late) >= 0


def test_an_agent_that_is_killed_is_named_and_not_those_that_miss_it(
    net: Emulation, launcher: AgentLauncher, tmp_path: Path
) -> None:
    with team_of(net, launcher, tmp_path, steps=1000) as team:
        team.wait_ready(10)
        team.go(time.monotonic())
        until(launcher, lambda: min(team.steps.values()) >= 1)
        os.kill(team.pids[2], signal.SIGKILL)
        with pytest.raises(AgentError, match=r"the agent of rank 2 was killed by signal 9 \(SIGKILL\)"):
            team.wait_done(20)
    assert any(e.kind == "step" for e in events_in(tmp_path)), "what was measured before is kept"


def test_an_agent_that_hangs_is_named_before_its_peers_give_up(
    net: Emulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging_launcher.install(monkeypatch)
    with AgentLauncher.start() as launcher:
        for sign, what in ((hanging_launcher.HANG, "its loop has stood still"), (signal.SIGSTOP, "no heartbeat")):
            with team_of(net, launcher, tmp_path, steps=1000, ack_timeout_s=3.2) as team:
                team.wait_ready(10)
                team.go(time.monotonic())
                while min(team.steps.values()) < 1:
                    assert launcher.listen(20)
                hung = time.monotonic()
                os.kill(team.pids[2], sign)
                with pytest.raises(AgentError, match=rf"^the agent of rank 2 hangs in step \d+: .*{what}"):
                    team.wait_done(20)
                print(f"\n{sign.name}: named after {time.monotonic() - hung:.2f} s, heartbeats every 0.4 s")
                assert time.monotonic() - hung < 3 * 0.4 + 1.0


def test_a_peer_that_never_comes_ends_the_wait(net: Emulation, launcher: AgentLauncher, tmp_path: Path) -> None:
    send = (Send(0, "send", "left", 1, SIZE),)
    program = Program("lonely", (send, (), (), ()), GROUPS)
    with team_of(net, launcher, tmp_path, program, ack_timeout_s=0.4, steps=1) as team:
        team.wait_ready(10)
        team.go(time.monotonic())
        with pytest.raises(AgentError, match=r"rank 0 moved nothing for 0.4 s in send \(step 0, group left\)"):
            team.wait_done(10)


def test_a_message_that_nobody_awaits_is_misdelivered(net: Emulation, launcher: AgentLauncher, tmp_path: Path) -> None:
    program = Program("idle", (((Compute(0, "c", 5.0),)),) * RANKS, GROUPS)
    with team_of(net, launcher, tmp_path, program, steps=1) as team:
        team.wait_ready(10)
        team.go(time.monotonic())
        here, there = net.plan.rail_of(3).port(3, 0), net.plan.rail_of(0).port(0, 1)
        with namespaces.inside(net.netns_fd("g3")):
            sock = socket.socket()
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, here.interface.encode())
            sock.bind((here.ip.split("/")[0], 0))
            sock.settimeout(5)
            sock.connect((there.ip.split("/")[0], TCP_PORT))
            sock.sendall(Header("data", Flow(0, 0, 0), 5, 12).pack() + bytes(12))
            with pytest.raises(AgentError, match=r"misdelivered: rank 0 got transfer 5 \(12 bytes\) of group dp"):
                team.wait_done(5)


class FakeController:
    """The job channel of a controller that lights everything once all members have asked."""

    def __init__(self, path: Path, groups: dict[str, Group], silent: bool = False) -> None:
        self._groups = groups
        self._silent = silent
        self._asked: dict[tuple[str, str, int], list[tuple[socket.socket, int]]] = defaultdict(list)
        self._lock = threading.Lock()
        self.heard: list[dict[str, Any]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        # An agent that is stopped may leave the answer to its last release unread, which resets the connection.
        with suppress(ConnectionError), sock, sock.makefile() as lines:
            for line in lines:
                message = json.loads(line)
                with self._lock:
                    self.heard.append(message)
                    self._answer(sock, message)

    def _answer(self, sock: socket.socket, message: dict[str, Any]) -> None:
        if message["op"] == "release":
            self._say(sock, message["id"], {})
            return
        if message["op"] == "request" and self._silent:
            return
        group = self._groups[message["group"]]
        here = self._asked[message["op"], group.name, message.get("index", -1)]
        here.append((sock, message["id"]))
        if len(here) < len(group.members):
            return
        paths = [list(path) for path in wired_paths(group)]
        answer: dict[str, Any] = {"domain": group.domain, "asks": True, "paths": []}
        if message["op"] == "request":
            answer = {"group": group.name, "index": message["index"], "paths": paths}
        for asker, id_ in here:
            self._say(asker, id_, answer)

    @staticmethod
    def _say(sock: socket.socket, id_: int, answer: dict[str, Any]) -> None:
        sock.sendall(json.dumps({"id": id_, "ok": True, **answer}).encode() + b"\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


@contextmanager
def controller(path: Path, **fields: Any) -> Iterator[FakeController]:
    running = FakeController(path, GROUPS, **fields)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("mode", ["on-demand", "provisioned"])
def test_every_phase_is_asked_for_and_released(
    net: Emulation, launcher: AgentLauncher, tmp_path: Path, mode: str
) -> None:
    channel = tmp_path / "channel"
    with (
        controller(channel) as fake,
        team_of(net, launcher, tmp_path, mode=mode, channel=str(channel)) as team,
    ):
        team.wait_ready(10)
        team.go(time.monotonic() + 0.02)
        team.wait_done(20)
    mine = [m for m in fake.heard if m["rank"] == 0 and m["op"] != "checkin"]
    assert [(m["op"], m["group"], m["index"]) for m in mine] == [
        (op, group, step) for step in range(2) for group in ("dp", "left") for op in ("request", "release")
    ]
    events = events_in(tmp_path)
    waits = [e for e in events if e.kind == "wait" and e["rank"] == 0]
    assert {(e["group"], e["index"]) for e in waits} >= {("dp", 0), ("dp", 1)}
    assert all(e["wrong"] == 0 for e in events if e.kind == "verified")
    phases = [e for e in events if e.kind == "phase" and e["rank"] == 0]
    assert [(e["step"], e["dimension"]) for e in phases] == [(0, "dp"), (0, "pp"), (1, "dp"), (1, "pp")]


def test_without_an_ack_nothing_is_sent(net: Emulation, launcher: AgentLauncher, tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    with (
        controller(channel, silent=True),
        team_of(net, launcher, tmp_path, mode="on-demand", channel=str(channel), ack_timeout_s=0.5) as team,
    ):
        team.wait_ready(10)
        team.go(time.monotonic())
        with pytest.raises(AgentError, match=r"no acknowledgement of request 0 of group dp within 0.5 s"):
            team.wait_done(10)
    events = events_in(tmp_path)
    assert not [e for e in events if e.kind == "communicate"]
    assert [e for e in events if e.kind == "wait"], "the wait it died in is on the timeline"


def test_no_agent_is_left_behind(net: Emulation, tmp_path: Path) -> None:
    with AgentLauncher.start() as launcher:
        with team_of(net, launcher, tmp_path, steps=1000) as team:
            team.wait_ready(10)
            team.go(time.monotonic())
        assert not [pid for pid in team.pids.values() if Path(f"/proc/{pid}").exists()]
        with team_of(net, launcher, tmp_path, steps=1000) as team:
            team.wait_ready(10)
            launcher.close()
            assert not [pid for pid in team.pids.values() if Path(f"/proc/{pid}").exists()]
            with pytest.raises(AgentError, match="is gone"):
                team.stop()
            team.stop = lambda: None  # type: ignore[method-assign]


def test_no_controller_is_one_sentence(net: Emulation, launcher: AgentLauncher, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "none")
    with (
        team_of(net, launcher, tmp_path, mode="on-demand", channel=nowhere, ack_timeout_s=0.2) as team,
        pytest.raises(AgentError, match="does not answer on its job channel"),
    ):
        team.wait_ready(5)
