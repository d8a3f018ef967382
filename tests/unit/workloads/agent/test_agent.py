"""One agent in a thread of the test, over the loopback interface; parent, controller and peers are the test."""

from __future__ import annotations

import fcntl
import json
import select
import socket
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents.loopback import LONGEST_WAIT_S, Peer, address, loopback_plan, run_agent, until, use_loopback

from railyard.errors import AgentError, ControlError, PeerLost, VerifyError
from railyard.scale import Scale
from railyard.timeline import Event, read_events
from workloads.agent.config import AgentConfig, Incarnation
from workloads.agent.transport import payload
from workloads.agent.transport.message import Header
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.rank.flows import Flow

SIZE = 4000
SEED = 3
PAIR = Flow(0, 0, 0, point_to_point=True)
LARGE = 400_000
"""More than a peer with little room takes in before it reads."""
LITTLE = 16 << 10
SOON_S = 0.05
"""A time-out that is meant to pass."""


class Running:
    """An agent, seen from its parent."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.said: list[dict[str, Any]] = []
        self.answers: list[int] = []
        """Of its heartbeats, which are not in ``said``."""
        self.error: BaseException | None = None
        self._sock, theirs = socket.socketpair()
        self._rest = b""
        self._thread = threading.Thread(target=self._run, args=(theirs,), daemon=True)
        self._thread.start()

    def _run(self, control: socket.socket) -> None:
        with control:
            try:
                run_agent(self.config, control)
            except BaseException as error:
                self.error = error

    def tell(self, message: dict[str, Any]) -> None:
        self._sock.sendall(json.dumps(message).encode() + b"\n")

    def tell_bytes(self, data: bytes) -> None:
        """Returns when the agent has read them."""
        self._sock.sendall(data)
        until(lambda: not any(fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(4))), lambda: time.sleep(0.0005))

    def go(self) -> float:
        """Wait until it is ready and start the first step; when that begins."""
        self.hears("ready")
        return self.begin()

    def begin(self) -> float:
        """Start the first step of an agent that is ready; when that begins."""
        at = time.monotonic()
        self.tell({"go": at})
        return at

    def hears(self, key: str) -> dict[str, Any]:
        """What the agent says next of this kind; fails if it says nothing like it."""
        heard = len(self.said)
        self.read_until(lambda: any(key in message for message in self.said[heard:]), f"say {key}")
        return next(message for message in self.said[heard:] if key in message)

    def read_until(self, condition: Callable[[], bool], what: str) -> None:
        """Read what the agent says until ``condition`` holds."""
        while not condition():
            assert select.select([self._sock], [], [], LONGEST_WAIT_S)[0], f"it does not {what}"
            data = self._sock.recv(1 << 16)
            assert data, f"it has ended with {self.error} and did not {what}"
            *lines, self._rest = (self._rest + data).split(b"\n")
            said = [json.loads(line) for line in lines]
            for message in said:
                assert message.pop("rank") == self.config.rank
            self.said += [message for message in said if "alive" not in message]
            self.answers += [message["alive"] for message in said if "alive" in message]

    def hang_up(self) -> None:
        self._sock.close()

    def stop(self) -> None:
        """Tell it to end, which it does without an error."""
        self.tell({"stop": True})
        assert self.ended() is None

    def ended(self) -> BaseException | None:
        """The error that it ends with; fails if it does not end."""
        self._thread.join(LONGEST_WAIT_S)
        assert not self._thread.is_alive(), "it does not end"
        return self.error

    def events(self, kind: str) -> list[Event]:
        path = Path(self.config.events)
        return [event for event in read_events(path) if event.kind == kind] if path.exists() else []


def go(agents: list[Running]) -> list[float]:
    """Start the first step of agents that call each other, once all of them listen; when it begins."""
    for agent in agents:
        agent.hears("ready")
    return [agent.begin() for agent in agents]


class Controller:
    """The controller's end of one job channel."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(LONGEST_WAIT_S)
        self._sock: socket.socket | None = None
        self._rest = b""
        self._heard: list[dict[str, Any]] = []

    @property
    def sock(self) -> socket.socket:
        if self._sock is None:
            self._sock, _ = self._listener.accept()
            self._sock.settimeout(LONGEST_WAIT_S)
        return self._sock

    def hears(self, op: str) -> dict[str, Any]:
        """The next message, which must be one of these; fails if none comes."""
        while not self._heard:
            data = self.sock.recv(1 << 16)
            assert data, f"the agent hung up and has not sent {op}"
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._heard += map(json.loads, lines)
        message = self._heard.pop(0)
        assert message["op"] == op, message
        return message

    def says_nothing(self) -> bool:
        """Whether no message is here."""
        return not self._heard and not select.select([self.sock], [], [], 0)[0]

    def answer(self, message: dict[str, Any], **fields: Any) -> None:
        self.sock.sendall(json.dumps({"id": message["id"], "ok": True, **fields}).encode() + b"\n")

    def check_in(self, *, asks: bool = True) -> None:
        """Let the agent in with its only group."""
        self.answer(self.hears("checkin"), asks=asks, domain="scale-out", paths=[])

    def acknowledge(self, message: dict[str, Any], **other: Any) -> None:
        """Rank 0 has a path to rank 1."""
        fields = {"group": message["group"], "index": message["index"], "paths": [[0, 0, 1, 0]]}
        self.answer(message, **{**fields, **other})

    def hang_up(self) -> None:
        """End as a controller that dies; the next connection is that to another one."""
        self.sock.close()
        self._sock = None

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._listener.close()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts agents; those that still run at the end of the test are stopped."""
    use_loopback(monkeypatch)
    started: list[Running] = []

    def start(program: Program, rank: int = 0, controller: Controller | None = None, **options: Any) -> Running:
        options = {"seed": SEED, "verify": True, "ack_timeout_s": LONGEST_WAIT_S, **options}
        mode = options.pop("mode", "native" if controller is None else "on-demand")
        channel = None if controller is None else str(controller.path)
        events = str(tmp_path / f"events-{rank}.jsonl")
        plan = loopback_plan(max(2, program.ranks))
        config = AgentConfig(rank, "job", mode, program, Scale(1.0), plan, events, channel, **options)
        started.append(Running(config))
        return started[-1]

    yield start
    for agent in started:
        agent.hang_up()
        agent.ended()


@pytest.fixture
def controller(run: Callable[..., Running], tmp_path: Path) -> Iterator[Controller]:
    made = Controller(tmp_path / "channel")
    yield made
    made.close()


@pytest.fixture
def peer(run: Callable[..., Running]) -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def one(*args: Any, **options: Any) -> Peer:
        made.append(Peer(*args, **options))
        return made[-1]

    yield one
    for found in made:
        found.close()


Run = Callable[..., Running]
MakePeer = Callable[..., Peer]


def program(ranks: Sequence[Sequence[Operation]], *groups: Group, eager: bool = False) -> Program:
    return Program("p", tuple(tuple(ops) for ops in ranks), {g.name: g for g in groups}, eager=eager)


def computing(seconds: float = 0.001) -> Program:
    return program([(Compute(0, "work", seconds),), ()])


def pair(size: int = SIZE, *, eager: bool = False) -> Program:
    """Rank 0 sends to rank 1."""
    ranks: list[tuple[Operation, ...]] = [(Send(0, "send", "pair", 1, size),), (Recv(0, "receive", "pair", 0, size),)]
    return program(ranks, Group("pair", "pp", (0, 1)), eager=eager)


def ring(n: int = 2) -> Program:
    op = Collective(1, "sum", "all_reduce", "world", 8000, (0,))
    return program([(Compute(0, "work", 0.001), op)] * n, Group("world", "dp", tuple(range(n))))


def numbers(size: int = SIZE) -> bytes:
    """What rank 0 sends in the first step."""
    return payload.total(SEED, PAIR, [0], 0, size // 4).tobytes()


# ---- steps -----------------------------------------------------------------------------------------------------------


def test_the_first_step_begins_at_the_time_of_go_to_the_microsecond(run: Run) -> None:
    agent = run(computing(0.002))
    agent.hears("ready")
    at = time.monotonic() + SOON_S
    agent.tell({"go": at})
    agent.hears("step")
    assert time.monotonic() >= at + 0.002
    agent.stop()
    (compute,), (step,) = agent.events("compute"), agent.events("step")
    assert (compute.t, compute.end) == (at, at + 0.002) == (step.t, step.end)
    assert compute["late_s"] >= 0 and compute["name"] == "work"


def test_every_step_is_told_and_done_follows_the_last_with_its_events_on_disk(run: Run) -> None:
    agent = run(computing(), steps=3)
    agent.go()
    agent.hears("done")
    assert agent.said == [{"ready": True}, {"step": 0}, {"step": 1}, {"step": 2}, {"done": True}]
    assert [event["rank"] for event in agent.events("step")] == [0] * 3 and len(agent.events("sockets")) == 1
    agent.stop()


# ---- the parent ------------------------------------------------------------------------------------------------------


def test_a_stop_ends_the_agent_in_the_middle_of_a_compute(run: Run) -> None:
    agent = run(computing(3600.0))
    agent.go()
    agent.stop()
    assert agent.events("compute") == []


def test_a_stop_ends_the_agent_while_it_waits_for_a_peer_and_without_a_packet_to_it(run: Run, peer: MakePeer) -> None:
    silent, agent = peer(1, 0), run(pair())
    agent.go()
    assert silent.sock, "it has called"
    agent.stop()
    with pytest.raises(BlockingIOError):
        silent.sock.recv(1)


def test_the_end_of_the_parent_ends_the_agent(run: Run) -> None:
    agent = run(computing(3600.0))
    agent.go()
    agent.hang_up()
    assert agent.ended() is None


def test_what_the_parent_says_may_come_in_pieces(run: Run) -> None:
    agent = run(computing())
    agent.hears("ready")
    at = time.monotonic()
    line = json.dumps({"go": at}).encode() + b"\n"
    for piece in (line[:5], line[5:-1], line[-1:] + b'{"stop"', b":true}\n"):
        agent.tell_bytes(piece)
    assert agent.ended() is None


def test_two_agents_cannot_have_one_port_and_the_second_says_which(run: Run) -> None:
    first = run(computing())
    first.hears("ready")
    error = run(computing()).ended()
    assert isinstance(error, AgentError)
    assert str(error) == f"rank 0 cannot listen on lo ({address(0)}): Address already in use"


def test_an_agent_that_has_ended_leaves_its_port_to_the_next(run: Run) -> None:
    for _ in range(2):
        agent = run(computing())
        agent.hears("ready")
        agent.stop()


# ---- peers -----------------------------------------------------------------------------------------------------------


def test_agents_sum_their_numbers_and_verify_them_in_every_step(run: Run) -> None:
    agents = [run(ring(3), rank, steps=3) for rank in range(3)]
    go(agents)
    for agent in agents:
        agent.hears("done")
    for agent in agents:
        assert [(event["step"], event["wrong"]) for event in agent.events("verified")] == [(0, 0), (1, 0), (2, 0)]
        assert [event["op_kind"] for event in agent.events("communicate")] == ["all_reduce"] * 3
        assert all(event["bytes"] == 8000 and event.seconds > 0 for event in agent.events("communicate"))


def test_wrong_numbers_end_the_agent_and_are_counted(run: Run, peer: MakePeer) -> None:
    sender, agent = peer(0, 1), run(pair(), 1)
    agent.hears("ready")
    sender.connect()
    at = agent.begin()
    assert [header for header, _ in sender.wait()] == [Header("ready", PAIR, 0, round(at * 1e6))]
    sender.say(Header("data", PAIR, 0, SIZE), bytes(4) + numbers()[4:-4] + bytes(4))
    error = agent.ended()
    assert isinstance(error, VerifyError)
    assert str(error) == "rank 1 ended receive of step 0 (group pair) with 2 of 1000 elements wrong"
    assert [event["wrong"] for event in agent.events("verified")] == [2], "the log is written all the same"


def test_a_peer_that_ends_after_the_last_step_is_no_error(run: Run, peer: MakePeer) -> None:
    receiver, agent = peer(1, 0), run(pair())
    agent.go()
    receiver.say(Header("ready", PAIR, 0))
    agent.hears("done")
    receiver.sock.close()
    assert agent.ended() is None


# ---- members of a job ------------------------------------------------------------------------------------------------


def member(run: Run, tmp_path: Path, rank: int = 0, **options: Any) -> Running:
    incarnation = Incarnation(group="world", state_bytes=8000, store=str(tmp_path / f"disk-{rank}"))
    return run(ring(), rank, incarnation=incarnation, **options)


def test_members_of_a_job_tell_the_checksum_of_their_state_after_each_step(run: Run, tmp_path: Path) -> None:
    agents = [member(run, tmp_path, rank, steps=2) for rank in (0, 1)]
    go(agents)
    for agent in agents:
        agent.hears("done")
    told = [[(m["state"], m["checksum"]) for m in agent.said if "state" in m] for agent in agents]
    assert told[0] == told[1] and [step for step, _ in told[0]] == [0, 1]
    assert len({checksum for _, checksum in told[0]}) == 2


def test_a_member_that_nobody_stops_ends_with_the_loss_after_a_bounded_time(
    run: Run, peer: MakePeer, tmp_path: Path
) -> None:
    dying, agent = peer(1, 0), member(run, tmp_path, ack_timeout_s=4 * SOON_S)
    agent.go()
    assert dying.wait()
    dying.sock.close()
    news = agent.hears("error")
    assert news["consequence"] is True and "rank 1" in news["error"]
    assert isinstance(agent.ended(), PeerLost)


# ---- the controller --------------------------------------------------------------------------------------------------


def test_an_agent_checks_in_with_its_own_groups_and_is_ready_when_all_are_answered(
    run: Run, controller: Controller
) -> None:
    groups = [Group(name, "pp", (0, 1)) for name in ("a", "b", "unused")]
    ranks: list[list[Operation]] = [
        [Send(0, "s", "a", 1, SIZE), Recv(1, "r", "b", 1, SIZE)],
        [Recv(0, "r", "a", 0, SIZE), Send(1, "s", "b", 0, SIZE)],
    ]
    agent = run(program(ranks, *groups), controller=controller)
    asked = [controller.hears("checkin") for _ in range(2)]
    assert [(message["job"], message["rank"], message["group"]) for message in asked] == [
        ("job", 0, "a"),
        ("job", 0, "b"),
    ]
    assert controller.says_nothing()
    for message in asked:
        assert agent.said == []
        controller.answer(message, asks=True, domain="scale-out", paths=[])
    agent.hears("ready")


def test_a_check_in_that_is_not_answered_is_an_error_that_names_the_group(run: Run, controller: Controller) -> None:
    agent = run(pair(), controller=controller, ack_timeout_s=SOON_S)
    controller.hears("checkin")
    error = agent.ended()
    assert isinstance(error, ControlError)
    assert str(error) == "the controller did not answer the check-in of rank 0 in group pair within 0.05 s"


def test_nothing_is_sent_without_an_acknowledgement_and_the_release_follows_the_last_byte(
    run: Run, controller: Controller, peer: MakePeer
) -> None:
    receiver, agent = peer(1, 0, room=LITTLE), run(pair(LARGE), controller=controller)
    controller.check_in()
    at = agent.go()
    request = controller.hears("request")
    assert (request["rank"], request["group"], request["index"]) == (0, "pair", 0)
    assert not receiver.called
    acknowledged = time.monotonic()
    controller.acknowledge(request)
    receiver.say(Header("ready", PAIR, 0))
    assert select.select([receiver.sock], [], [], LONGEST_WAIT_S)[0]
    assert controller.says_nothing(), "the bytes are not all there"
    ((header, data),) = receiver.wait()
    assert header == Header("data", PAIR, 0, LARGE) and data == numbers(LARGE)
    release = controller.hears("release")
    assert (release["group"], release["index"]) == ("pair", 0)
    agent.hears("done")
    (wait,) = agent.events("wait")
    assert at <= wait.t and wait.end is not None and wait.end >= acknowledged and wait["group"] == "pair"


@pytest.mark.parametrize("noticed", [True, False])
def test_an_agent_that_outlives_its_controller_goes_on_with_the_next_one(
    run: Run, controller: Controller, peer: MakePeer, noticed: bool
) -> None:
    receiver, agent = peer(1, 0), run(pair(), controller=controller, steps=2, outlives_controller=True)
    controller.check_in()
    agent.go()
    controller.acknowledge(controller.hears("request"))
    receiver.say(Header("ready", PAIR, 0))
    receiver.wait()
    controller.hears("release")
    asked = controller.hears("request")
    assert asked["index"] == 1
    controller.hang_up()
    if noticed:
        time.sleep(SOON_S)
    agent.tell({"resume": True})
    told = controller.hears("resume")
    assert (told["job"], told["rank"], told["acknowledged"], told["held"]) == ("job", 0, {"pair": 0}, [])
    again = controller.hears("request")
    assert {**again, "id": 0} == {**asked, "id": 0}
    controller.acknowledge(again)
    receiver.say(Header("ready", PAIR.at(1), 0))
    receiver.wait()
    assert controller.hears("release")["index"] == 1
    agent.hears("done")


def test_a_member_that_computes_has_the_time_of_its_step_beside_the_timeout(run: Run, controller: Controller) -> None:
    receiver = (Compute(0, "work", 0.3), Recv(1, "receive", "pair", 0, LITTLE, (0,)))
    made = program([(Send(0, "send", "pair", 1, LITTLE),), receiver], Group("pair", "pp", (0, 1)))
    agent = run(made, controller=controller, ack_timeout_s=4 * SOON_S)
    controller.check_in()
    agent.go()
    controller.hears("request")
    assert "got no acknowledgement of request 0 of group pair within 0.5 s" in str(agent.ended())


def test_a_refused_request_ends_the_agent_with_the_reason(run: Run, controller: Controller) -> None:
    agent = run(pair(), controller=controller)
    controller.check_in()
    agent.go()
    controller.answer(controller.hears("request"), ok=False, error="no circuit", kind="PeerLost")
    error = agent.ended()
    assert type(error) is PeerLost and "refused request of group pair: no circuit" in str(error)


@pytest.mark.parametrize("in_a_step", [False, True])
def test_a_controller_that_hangs_up_ends_the_agent(run: Run, controller: Controller, in_a_step: bool) -> None:
    agent = run(pair(), controller=controller)
    controller.check_in()
    if in_a_step:
        agent.go()
        controller.hears("request")
    else:
        agent.hears("ready")
    controller.sock.close()
    error = agent.ended()
    assert isinstance(error, ControlError) and str(error) == "the controller closed the job channel"


def test_a_loop_that_waits_or_computes_answers_its_heartbeats(run: Run) -> None:
    agent = run(computing(60.0), ack_timeout_s=8 * SOON_S)
    agent.go()
    agent.read_until(lambda: bool(agent.answers) and agent.answers[-1] > 2, "answer")
    assert agent.answers == sorted(agent.answers)
    agent.stop()
