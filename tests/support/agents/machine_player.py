"""Plays the machines of all ranks as agents do, in memory: messages, acknowledgements and answers in any order.

Messages of a path arrive in their order, and a rank hears the controller in order; everything else happens in an order
that a seed decides. Values are moved and verified. The controller is the real engine with ideal switches.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from controllers.engine.actions import Ack, CheckedIn, Darken, Note, Refuse, RegisterRefused, SlotEnds
from controllers.engine.actions import Action as EngineAction
from controllers.engine.engine import Engine
from controllers.engine.jobs import Job
from controllers.policies.catalog import load_policy
from controllers.policies.policy import Policy
from railyard.scale import Scale
from railyard.timeline import Event
from topos.describe import plan as planned
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig, AgentMode
from workloads.agent.transport.payload import Values
from workloads.collectives.circuits import follow_circuits
from workloads.phases import phases
from workloads.program import Collective, Compute, Group, Program, Send
from workloads.rank.actions import Action, Announce, Drain, Message, OpenPath, RunCompute, SendPart
from workloads.rank.exchange import MessagePart
from workloads.rank.executor import ReleaseCircuits, RequestCircuits, StepEnded
from workloads.rank.flows import key_at_peer
from workloads.rank.in_flight import InFlight
from workloads.rank.machine import RankMachine
from workloads.rank.paths import PeerKey, path_at_peer
from workloads.rank.roll_call import Tell
from workloads.rank.slot_sender import Moved
from workloads.rank.tensors import Floats
from workloads.schedule import Schedule

TICK_S = 1e-6
"""Time between two events."""


@dataclass
class OnWire:
    """A message under way."""

    sender: int
    in_flight: InFlight
    part: MessagePart
    path: PeerKey
    values: Floats | None
    began: float | None = None


@dataclass
class Player:
    """All ranks of ``program`` on ``plan``; ``policy`` None: no controller."""

    program: Program
    plan: FabricPlan
    policy: Policy | None
    mode: AgentMode
    seed: int
    steps: int = 2
    now: float = 0.0
    events: list[Event] = field(default_factory=list)
    """The timeline of the agents and of the controller."""
    asked: list[tuple[int, Message]] = field(default_factory=list)
    """What the ranks said to the controller, in order."""
    wrong: list[int | None] = field(default_factory=list)
    """Wrong elements of each communication that is over."""

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._todo: list[Callable[[], None]] = []
        self._wires: dict[tuple[int, PeerKey], deque[OnWire]] = defaultdict(deque)
        self._said: dict[int, deque[Message]] = defaultdict(deque)
        self._lines: dict[tuple[int, int], deque[Tell]] = defaultdict(deque)
        """What one rank tells another of an eager collective."""
        self._told: dict[int, deque[Ack]] = defaultdict(deque)
        self._unacknowledged: dict[int, int] = defaultdict(int)
        """Messages of a communication that the peers have not acknowledged, by its identity."""
        self._ending: dict[int, Callable[[], None]] = {}
        self._noticed: dict[tuple[int, PeerKey], bool] = {}
        """Whether the kernel gives notice of the last message that a rank sent by a path."""
        self._engine = Engine(self.plan)
        self._values = [Values(self._config(rank)) for rank in range(self.program.ranks)]
        self.machines = [self._machine(rank) for rank in range(self.program.ranks)]

    def _config(self, rank: int) -> AgentConfig:
        scale = Scale(1.0)
        return AgentConfig(
            rank, "job", self.mode, self.program, scale, self.plan, "", steps=self.steps, seed=self.seed, verify=True
        )

    def _machine(self, rank: int) -> RankMachine:
        return RankMachine(
            self.program,
            rank,
            Scale(1.0),
            phases(self.program, rank),
            self.steps,
            ports_per_gpu=self.plan.ports_per_gpu,
            forwarding=self.mode in ("native", "electrical"),
            provisioned=self.mode == "provisioned",
            values=self._values[rank].contribution,
        )

    # ---- the order of events ------------------------------------------------------------------------------------

    def run(self, job: Job) -> None:
        """Play until nothing is left to do."""
        if self.policy is None:
            for machine in self.machines:
                for group in self.program.groups.values():
                    machine.paths.set_wired(group)
        else:
            self._control(self._engine.register(job, self.policy, self.now))
            self._play()
            for group in job.groups:
                for rank in group.members:
                    self._control(self._engine.check_in(rank, group.name, self.now))
        for rank, machine in enumerate(self.machines):
            self._execute(rank, machine.begin(self.now, self.now))
        self._play()

    def _play(self) -> None:
        while True:
            choices = [*self._todo, *self._deliverable()]
            if not choices:
                return
            chosen = self._rng.choice(choices)
            if chosen in self._todo:
                self._todo.remove(chosen)
            self.now += TICK_S
            chosen()

    def _deliverable(self) -> Iterable[Callable[[], None]]:
        for wire in self._wires.values():
            if wire and self._may_receive(wire[0]):
                yield lambda wire=wire: self._move(wire)  # type: ignore[misc]
        for (rank, peer), lines in self._lines.items():
            if lines:
                yield lambda rank=rank, peer=peer, lines=lines: self._tell(rank, peer, lines.popleft())  # type: ignore[misc]
        for rank, said in self._said.items():
            if said:
                yield lambda rank=rank, said=said: self._control(self._answer(rank, said.popleft()))  # type: ignore[misc]
        for rank, told in self._told.items():
            if told:
                yield lambda rank=rank, told=told: self._hear(rank, told.popleft())  # type: ignore[misc]

    # ---- actions of the machines ----------------------------------------------------------------------------------

    def _execute(self, rank: int, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case SendPart(in_flight, part, path, acknowledged):
                    self._noticed[rank, path] = acknowledged
                    in_flight.opened.add(path)
                    content = in_flight.contents.pop(part.transfer)
                    values = np.frombuffer(content, dtype=np.float32).copy()
                    self._unacknowledged[id(in_flight)] += 1
                    self._wires[rank, path].append(OnWire(rank, in_flight, part, path, values))
                case Announce():
                    self._todo.append(lambda action=action: self._credit(rank, action))  # type: ignore[misc]
                case Tell():
                    self._lines[rank, action.rank].append(action)
                case Drain(in_flight):
                    assert all(self._noticed[rank, path] for path in in_flight.opened), "its end would come late"
                    self._todo.append(lambda in_flight=in_flight: self._drain(rank, in_flight))  # type: ignore[misc]
                case RunCompute(due):
                    self._todo.append(lambda due=due: self._end_compute(rank, due))  # type: ignore[misc]
                case Event():
                    self.events.append(action)
                case RequestCircuits() | ReleaseCircuits() | Moved():
                    self.asked.append((rank, action))
                    self._said[rank].append(action)
                case _:
                    assert isinstance(action, OpenPath | StepEnded)

    def _end_compute(self, rank: int, due: float) -> None:
        self.now = max(self.now, due)
        self._execute(rank, self.machines[rank].compute_done(self.now))

    def _credit(self, rank: int, action: Announce) -> None:
        peer = action.path[2]
        key, path = key_at_peer(action.flow, rank), path_at_peer(action.path, rank)
        self._execute(peer, self.machines[peer].credit(key, path, action.last_round, self.now))

    def _tell(self, rank: int, peer: int, action: Tell) -> None:
        self._execute(peer, self.machines[peer].told(action.flow, rank, action.word, action.number, self.now))

    def _may_receive(self, message: OnWire) -> bool:
        """Whether the receiver has come to the collective; only in slots may a sender be ahead of it."""
        key = key_at_peer(message.in_flight.key, message.sender)
        there = self.machines[message.part.peer]
        if key in there.receiving or (self.program.eager and message.in_flight.flow.point_to_point):
            return True
        assert message.in_flight.in_slots(message.part), "data met a rank that does not await it"
        return False

    def _move(self, wire: deque[OnWire]) -> None:
        """Let the first byte of the next message arrive, or its last."""
        message = wire[0]
        part, in_flight, rank = message.part, message.in_flight, message.sender
        peer, key = self.machines[part.peer], key_at_peer(message.in_flight.key, message.sender)
        there = peer.receiving.get(key)
        if message.began is None:
            message.began = self.now
            if there is not None:
                path, incoming = path_at_peer(message.path, rank), there.exchange.incoming[part.transfer]
                assert there.in_slots(incoming) or peer.path(there, incoming, incoming=True) == path
                self._execute(part.peer, peer.began(there, incoming, path, self.now, self.now))
            return
        wire.popleft()
        assert message.values is not None
        if there is not None:
            there.staged[part.transfer] = message.values
        self._execute(part.peer, peer.arrived(key, part.transfer, message.began, self.now))
        if there is None:
            peer.unexpected[key][part.transfer].values = message.values
        self._execute(rank, self.machines[rank].taken(in_flight, self.now))
        if part.transfer in in_flight.exchange.awaits_sent:
            self._todo.append(lambda: self._execute(rank, self.machines[rank].left(in_flight, part)))
        self._todo.append(lambda: self._acknowledged(rank, in_flight, part))

    def _acknowledged(self, rank: int, in_flight: InFlight, part: MessagePart) -> None:
        self._unacknowledged[id(in_flight)] -= 1
        if in_flight.in_slots(part) or in_flight.on_circuit(part):
            self._execute(rank, self.machines[rank].delivered(in_flight, part, self.now))
        self._end_if_acknowledged(in_flight)

    def _drain(self, rank: int, in_flight: InFlight) -> None:
        machine = self.machines[rank]
        if self.program.eager and isinstance(in_flight.op, Send):
            self._execute(rank, machine.buffered(in_flight, self.now))

        def end() -> None:
            machine.close(in_flight)
            self.wrong.append(self._values[rank].wrong_elements(in_flight))
            fields = {"rank": rank, **in_flight.fields()}
            self.events.append(Event(in_flight.posted, "agent", "communicate", self.now, fields))
            self._execute(rank, machine.over(in_flight, self.now))

        self._ending[id(in_flight)] = end
        self._end_if_acknowledged(in_flight)

    def _end_if_acknowledged(self, in_flight: InFlight) -> None:
        if not self._unacknowledged[id(in_flight)] and id(in_flight) in self._ending:
            self._ending.pop(id(in_flight))()

    # ---- the controller -------------------------------------------------------------------------------------------

    def _answer(self, rank: int, message: Message) -> list[EngineAction]:
        group, index = message.group, message.index
        if isinstance(message, Moved):
            return self._engine.moved(rank, group, index, message.slot, message.idle, self.now)
        tell = self._engine.request if isinstance(message, RequestCircuits) else self._engine.release
        return tell(rank, group, index, self.now)

    def _hear(self, rank: int, ack: Ack) -> None:
        machine = self.machines[rank]
        if ack.slot_window is None:
            self._execute(rank, machine.acknowledged(ack.group, ack.index, ack.paths, self.now))
        elif (rank, ReleaseCircuits(ack.group, ack.index)) not in self.asked:
            self._execute(rank, machine.slot_began(ack.group, ack.index, ack.slot_window, ack.paths, self.now))

    def _control(self, actions: Iterable[EngineAction]) -> None:
        for action in actions:
            match action:
                case Ack():
                    self._told[action.rank].append(action)
                case CheckedIn():
                    self.machines[action.rank].checked_in(
                        action.group, asks=action.asks, rotates=action.rotates, paths=action.paths
                    )
                case Darken():
                    done = action.reconfiguration_id
                    self._todo.append(lambda done=done: self._control(self._engine.reconfigured(done, self.now)))  # type: ignore[misc]
                case Note():
                    self.events.append(action.event())
                case Refuse() | RegisterRefused() | SlotEnds():
                    raise AssertionError(action)


def played(
    made: Schedule,
    size_bytes: int,
    seed: int,
    *,
    steps: int = 1,
    on_circuits: bool = False,
    late: tuple[int, int] = (0, 0),
) -> Player:
    """A player that has played ``made`` on packet switches, or on circuits that follow it; every sum was right.

    ``late``: a rank, and the number of computes that it has before.
    """
    rank, computes = late
    before = tuple(Compute(number, "late", 1e-3) for number in range(computes))
    op = Collective(0, "own", made.kind, "g", size_bytes, (), made.algorithm)
    last = replace(op, id=computes, deps=(computes - 1,)) if computes else op
    operations: tuple[tuple[Compute | Collective, ...], ...] = tuple(
        (*before, last) if position == rank else (op,) for position in range(made.n)
    )
    program = Program("own", operations, {"g": Group("g", "dp", tuple(range(made.n)))}, {made.algorithm: made})
    program = follow_circuits(program) if on_circuits else program
    fabric = planned(RailTopo(servers=made.n, gpus=1, ports=2, fabric="ocs" if on_circuits else "electrical"))
    mode: AgentMode
    policy, mode = (load_policy("follow", fabric), "on-demand") if on_circuits else (None, "native")
    player = Player(program, fabric, policy, mode, seed, steps)
    player.run(Job("own", tuple(program.groups.values()), mode))
    assert all(machine.finished for machine in player.machines) and not any(player.wrong)
    return player
