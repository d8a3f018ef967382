"""Agents that a script drives, in threads of the test over the loopback interface; the scripts are the test."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agents.loopback import LONGEST_WAIT_S, loopback_plan, run_agent, until, use_loopback

from railyard.errors import AgentError
from railyard.scale import Scale
from railyard.timeline import Event, read_events
from topos.kernel.relay import connect_unix
from workloads.agent.config import AgentConfig, Incarnation
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.pytorch.rail_client import RailClient

BYTES = 40


def program_of(rank: int) -> tuple[Operation, ...]:
    """A message from rank 0 to rank 1 that nothing waits for, a small sum by gloo, and a sum on the rails."""
    message = Send if rank == 0 else Recv
    return (
        Compute(0, "a", 1.0),
        message(1, "message", "pair", 1 - rank, BYTES, (0,)),
        Compute(2, "b", 1.0, () if rank == 0 else (1,)),
        Collective(3, "loss", "all_reduce", "small", 4, (2,)),
        Compute(4, "c", 1.0, (3,)),
        Collective(5, "sum", "all_reduce", "world", BYTES, (4,)),
        Compute(6, "end", 1.0, (5,)),
    )


GROUPS = {
    "pair": Group("pair", "pp", (0, 1)),
    "small": Group("small", "dp", (0, 1), "front-end"),
    "world": Group("world", "dp", (0, 1)),
}
PROGRAM = Program("p", (program_of(0), program_of(1)), GROUPS)


class Driven:
    """The agent of a rank in a thread, and its parent's end."""

    def __init__(self, folder: Path, rank: int, **fields: Any) -> None:
        self.path = str(folder / f"g{rank}.sock")
        self.events_file = folder / f"g{rank}.jsonl"
        config = AgentConfig(
            rank,
            "job",
            "native",
            PROGRAM,
            Scale(1.0),
            loopback_plan(2),
            str(self.events_file),
            **{"steps": 1_000_000, "ack_timeout_s": LONGEST_WAIT_S, "script": self.path, **fields},
        )
        self.error: BaseException | None = None
        self.script: socket.socket | None = None
        self._parent, self._theirs = socket.socketpair()
        self._parent.setblocking(False)
        self._said = b""
        self._config = config
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._theirs:
            try:
                run_agent(self._config, self._theirs)
            except BaseException as error:
                self.error = error

    def said(self, key: str) -> list[Any]:
        """What the agent has reported under ``key``."""
        try:
            self._said += self._parent.recv(1 << 16)
        except BlockingIOError:
            time.sleep(0.001)
        return [message[key] for line in self._said.splitlines() if key in (message := json.loads(line))]

    def go(self) -> None:
        until(lambda: self.said("ready"), lambda: None)
        self._parent.sendall(json.dumps({"go": time.monotonic()}).encode() + b"\n")

    def ended(self) -> BaseException | None:
        self._thread.join(LONGEST_WAIT_S)
        assert not self._thread.is_alive(), "it does not end"
        return self.error

    def stop(self) -> None:
        self._parent.close()
        self.ended()
        if self.script is not None:
            self.script.close()

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_events(self.events_file) if event.kind == kind]


Make = Callable[..., Driven]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    use_loopback(monkeypatch)
    made: list[Driven] = []

    def start(rank: int = 0, **fields: Any) -> Driven:
        made.append(Driven(tmp_path, rank, **fields))
        return made[-1]

    yield start
    for agent in made:
        agent.stop()


class Script:
    """The raw end of a script."""

    def __init__(self, agent: Driven, *, ready: bool = True) -> None:
        self.sock = agent.script = connect_unix(agent.path, wait_s=LONGEST_WAIT_S)
        self.sock.settimeout(LONGEST_WAIT_S)
        if ready:
            self.say({"ready": True})
            agent.go()
            assert self.hears() == {"go": True}

    def say(self, *messages: Any, memory: int | None = None) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            if memory is None:
                self.sock.sendall(data)
            else:
                fd = os.memfd_create("test")
                os.truncate(fd, memory)
                socket.send_fds(self.sock, [data], [fd])
                os.close(fd)

    def hears(self) -> dict[str, Any]:
        line = b""
        while not line.endswith(b"\n"):
            line += self.sock.recv(1)
        return dict(json.loads(line))


class Over:
    """Whether a call is over."""

    def __init__(self) -> None:
        self.event, self.error = threading.Event(), None

    def __call__(self, error: Any) -> None:
        self.error = error
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(LONGEST_WAIT_S)


NONE = memoryview(b"")


def play(client: RailClient, rank: int, step: int) -> float:
    """A step of a script: when it made its last call. The message of rank 0 is not waited for."""
    values = np.arange(10, dtype=np.float32) + step
    got, total = np.zeros(10, dtype=np.float32), values * (rank + 1)
    sent, summed = Over(), Over()
    send, receive = (values.data, NONE) if rank == 0 else (NONE, got.data)
    client.carry(0, "send" if rank == 0 else "recv", "float32", "sum", send, receive, sent)
    if rank == 1:
        sent.wait()
        assert np.array_equal(got, values)
    values[:] = -1
    client.passed(1)
    client.over(1)
    time.sleep(0.05)
    at = time.monotonic()
    client.carry(2, "all_reduce", "float32", "sum", total.data, total.data, summed)
    summed.wait()
    assert summed.error is None and np.array_equal(total, 3 * (np.arange(10) + step))
    client.step(step)
    return at


def test_computes_take_the_time_of_the_script_and_it_ends_the_steps(make: Make) -> None:
    agents = [make(0, verify=True), make(1, verify=True)]
    clients = [RailClient(agent.path, LONGEST_WAIT_S, on_lost=lambda: None) for agent in agents]
    called: dict[int, list[float]] = {0: [], 1: []}

    def run(rank: int) -> None:
        clients[rank].ready()
        called[rank] += [play(clients[rank], rank, step) for step in range(3)]
        clients[rank].bye()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for agent in agents:
        agent.go()
    for rank, agent in enumerate(agents):
        until(lambda agent=agent: agent.said("done"), lambda: None)  # type: ignore[misc]
        assert agent.said("step") == [0, 1, 2]
        computes = agent.events("compute")
        assert [e["op"] for e in computes] == [0, 2, 4, 6] * 3 and {e["late_s"] for e in computes} == {None}
        before_sums = [e.end for e in computes if e["op"] == 4]
        assert before_sums == pytest.approx(called[rank], abs=0.03)
        assert agent.events("verified") == []
        small = [e for e in agent.events("communicate") if e["group"] == "small"]
        assert [(e["step"], e["sent_bytes"], e["lanes"]) for e in small] == [(k, 0, []) for k in range(3)]


def test_a_member_of_a_training_job_begins_at_its_step_and_outlives_its_script(make: Make, tmp_path: Path) -> None:
    agent = make(0, incarnation=Incarnation(2, 7, group="", store=str(tmp_path / "disk")))
    script = Script(agent)
    script.sock.close()
    until(lambda: agent.said("error"), lambda: None)
    assert agent.said("error")[0].startswith("the script of rank 0 ended in step 7 without its communication 0 (")
    assert agent.said("consequence"), "it waits for the end of the incarnation, and is not taken for dead"
    agent.stop()
    assert agent.error is None


CALL = {"call": 0, "kind": "send", "bytes": BYTES, "dtype": "float32"}
REFUSED: dict[str, tuple[list[Any], int | None, str]] = {
    "kind": (
        [{**CALL, "kind": "all_reduce"}],
        BYTES,
        "^call 0 of .* is all_reduce, and its record has send ",
    ),
    "number": ([{**CALL, "call": 3}], BYTES, "made call 3 in step 0; its record has 3, from 0$"),
    "memory": ([CALL], None, "sent a call without its memory$"),
    "short": ([CALL], BYTES - 1, "the memory of a call of the script of rank 0 ends before byte 40$"),
    "type": ([{**CALL, "dtype": "complex64"}], BYTES, "is refused: dtype: must be one of float32, "),
    "large": ([{**CALL, "bytes": 1 << 31}], BYTES, "is refused: bytes: must be at most 2e[+]09, not 2147483648$"),
    "again": ([{**CALL, "call": 2, "kind": "all_reduce"}] * 2, BYTES, "^call 2 of .* was made twice$"),
    "gloo": ([{"call": 0}], None, "must be on a rail, where message was recorded$"),
    "rail": ([{**CALL, "call": 1}], BYTES, "must be on the front-end network, where loss was recorded$"),
    "over": ([{"over": 1}], None, "ended call 1, which it has not begun$"),
    "step": ([{"step": 0}], None, r"ended step 0 without its communication 0 \(message in group pair\)$"),
    "json": ([b"[1]\n"], None, "sent a line that is no message$"),
    "line": ([b"x" * (1 << 20), b"xx"], None, "sent a line of more than 1048576 bytes$"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_script_says_wrong_is_one_sentence_to_both(name: str, make: Make) -> None:
    messages, memory, words = REFUSED[name]
    agent = make(0)
    script = Script(agent)
    script.say(*messages, memory=memory)
    error = script.hears()["error"]
    with pytest.raises(AgentError, match=words) as refused:
        raise agent.ended() or AssertionError("no error")
    assert str(refused.value) == error


def test_a_script_that_does_not_wait_for_go(make: Make) -> None:
    agent = make(0)
    Script(agent, ready=False).say({"ready": True}, CALL)
    assert str(agent.ended()) == "the script of rank 0 did not wait for its first step"


def test_a_script_that_ends_before_its_recorded_step(make: Make) -> None:
    agent = make(0)
    Script(agent, ready=False).sock.close()
    assert str(agent.ended()) == "the script of rank 0 ended before its recorded step"


def test_calls_after_the_last_step_are_refused_on_the_rails_alone(make: Make) -> None:
    agent = make(0, steps=0)
    script = Script(agent)
    until(lambda: agent.said("done"), lambda: None)
    script.say({"call": 1}, {"over": 1})
    script.say(CALL, memory=BYTES)
    assert str(agent.ended()) == "call 0 of the script of rank 0 in step 0 is send, and no step is left"


def test_the_end_of_the_agent_ends_the_calls_and_the_process_of_the_script(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.pytorch.rail_client._GRACE_S", 0.0)
    agent, lost, over = make(0), threading.Event(), Over()
    client = RailClient(agent.path, LONGEST_WAIT_S, on_lost=lost.set)
    threading.Thread(target=agent.go, daemon=True).start()
    client.ready()
    client.carry(2, "all_reduce", "float32", "sum", memoryview(bytearray(BYTES)), memoryview(bytearray(BYTES)), over)
    client.over(1)
    over.wait()
    assert str(over.error) == "the script of rank 0 ended call 1, which it has not begun" == str(agent.ended())
    assert lost.wait(LONGEST_WAIT_S)
    with pytest.raises(AgentError, match="which it has not begun"):
        client.carry(0, "send", "float32", "sum", memoryview(bytes(BYTES)), NONE, over)


def test_no_agent(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"^no agent listens at .*none within 0.02 s: No such file or directory$"):
        RailClient(str(tmp_path / "none"), 0.02)


def test_a_path_that_no_socket_can_have(make: Make) -> None:
    error = str(make(0, script="/tmp/" + "x" * 200).ended())
    assert error.startswith("cannot listen for the script of rank 0 at /tmp/x") and error.endswith("path too long")
