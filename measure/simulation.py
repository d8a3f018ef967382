"""A run without packets: the same executors, schedules, engine and policy as live, over ideal links.

What the model adds to the shared decisions is only time: alpha-beta transfers (``measure.wires``), compute that takes
exactly as long as asked, and a control path of constant delay. It writes the same timeline as a live run, so that one
set of definitions (``measure.metrics``) reads both. Its clock is wall-clock seconds of the emulator, from 0.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from controllers.actions import Ack, Action, CheckedIn, Darken, Note, Refuse, RegisterRefused
from controllers.engine import Engine
from controllers.jobs import Job
from controllers.policy import Path, Policy
from measure.timeline import Event
from measure.wires import Wires
from railyard.errors import ControlError
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.collectives.catalog import schedule_of
from workloads.exchange import Exchange, Part, collective_exchange, elements_of, recv_exchange, send_exchange
from workloads.executor import (
    Blocked,
    Executor,
    Intent,
    PhaseBegan,
    PhaseEnded,
    Release,
    Request,
    StartCommunication,
    StartCompute,
    StepBegan,
    StepEnded,
)
from workloads.paths import choose_path, wired_paths
from workloads.phases import Phase, all_phases
from workloads.program import Collective, Communication, Dimension, Domain, Program, Send
from workloads.schedule import Schedule, Transfer

Message = tuple[str, str, int, int, int]
"""(group, stream, number, source rank, transfer): what one message of the run is called on both ends."""


@dataclass(frozen=True)
class Costs:
    """What this machine adds, in wall-clock seconds.

    ``alpha_s``: a message, from its last byte on the wire until the receiver has it. ``control_s``: request to
    acknowledgement where no circuit changes. ``install_s``: what a dark time is longer than configured.
    """

    alpha_s: float = 0.0
    control_s: float = 0.0
    install_s: float = 0.0


@dataclass
class _Flow:
    """One communication under way on one rank."""

    op: Communication
    step: int
    phase: int
    exchange: Exchange
    name: tuple[str, str, int]
    began: float
    unsent: int = 0
    sent_bytes: int = 0


@dataclass
class _Rank:
    """One agent."""

    executor: Executor
    dimensions: tuple[Dimension, ...]
    paths: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    flows: dict[tuple[str, str, int], _Flow] = field(default_factory=dict)
    early: dict[tuple[str, str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    count: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    began: dict[tuple[str, int], float] = field(default_factory=dict)
    blocked: dict[int, tuple[Blocked, float]] = field(default_factory=dict)


class Simulation:
    """Runs ``program`` ``steps`` times. ``policy`` None: no control plane (mode native).

    ``run`` raises ``ControlError`` when the control plane refuses a request, when a group has no path between two of
    its members, or when the run comes to a standstill.
    """

    def __init__(
        self,
        program: Program,
        plan: FabricPlan,
        policy: Policy | None,
        job: Job,
        scale: Scale,
        steps: int,
        costs: Costs,
        *,
        provisioned: bool,
    ) -> None:
        self.program, self.plan, self.policy = program, plan, policy
        self.job, self.scale, self.steps, self.costs = job, scale, steps, costs
        self.provisioned = provisioned
        self.events: list[Event] = []
        self.now = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._wires = Wires(plan)
        self._engine = Engine(plan)
        self._packet_rails = all(switch.kind == "electrical" for switch in plan.network("rail"))
        self._domain: dict[str, Domain] = {name: group.domain for name, group in program.groups.items()}
        self._checked_in: dict[tuple[int, str], CheckedIn] = {}
        self._transfers: dict[int, list[list[tuple[int, Transfer]]]] = {}
        """Per schedule (by identity; the program keeps it alive) the transfers of each position."""

    def run(self) -> tuple[Event, ...]:
        """The timeline of the whole run."""
        if self.policy is not None:
            self._act(self._engine.register(self.job, self.policy, 0.0))
            self._play()
            for group in self.job.groups:
                for rank in group.members:
                    self._act(self._engine.check_in(rank, group.name, self.now))
        found = all_phases(self.program)
        self._ranks = [self._rank(rank, found[rank]) for rank in range(self.program.ranks)]
        for rank, agent in enumerate(self._ranks):
            self._carry_out(rank, agent.executor.begin())
        self._play()
        for rank, agent in enumerate(self._ranks):
            if not agent.executor.finished:
                raise ControlError(
                    f"the predicted run stands still at {self.scale.real_s(self.now):.3f} s: rank {rank} waits for "
                    f"{self._waits_for(agent)}"
                )
        return tuple(sorted(self.events, key=lambda e: e.t))

    # ---- time -------------------------------------------------------------------------------------------------

    def _at(self, time: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (time, self._number, what))

    def _play(self) -> None:
        while self._agenda:
            self.now, _, what = heapq.heappop(self._agenda)
            what()

    def _note(self, kind: str, began: float, **fields: object) -> None:
        self.events.append(Event(began, "agent", kind, self.now, fields))

    # ---- agents -----------------------------------------------------------------------------------------------

    def _rank(self, rank: int, found: tuple[Phase, ...]) -> _Rank:
        mine = [group for group in self.program.groups.values() if rank in group.members]
        told = {name: answer for (r, name), answer in self._checked_in.items() if r == rank}
        asks = {name for name, answer in told.items() if answer.asks}
        executor = Executor(
            self.program.operations[rank],
            [phase.operations for phase in found],
            asks,
            self.steps,
            provisioned=self.provisioned,
        )
        agent = _Rank(executor, tuple(phase.dimension for phase in found))
        for group in mine:
            final = told.get(group.name)
            wired = wired_paths(group, self.plan.ports_per_gpu)
            agent.paths[group.name] = final.paths if final is not None and final.paths else wired
        return agent

    def _carry_out(self, rank: int, intents: Iterable[Intent]) -> None:
        for intent in intents:
            self._carry_out_one(rank, self._ranks[rank], intent)

    def _carry_out_one(self, rank: int, agent: _Rank, intent: Intent) -> None:
        match intent:
            case StartCompute(step, op):
                began, due = self.now, self.now + self.scale.emulated_s(op.seconds_in(step))
                self._at(due, lambda: self._computed(rank, step, op.id, op.name, began))
            case StartCommunication(step, op, phase):
                self._start(rank, agent, step, op, phase)
            case Blocked():
                agent.blocked[intent.op.id] = (intent, self.now)
            case Request(group, index):
                self._at(
                    self.now + self.costs.control_s / 2,
                    lambda: self._act(self._engine.request(rank, group, index, self.now)),
                )
            case Release(group, index):
                self._at(
                    self.now + self.costs.control_s / 2,
                    lambda: self._act(self._engine.release(rank, group, index, self.now)),
                )
            case StepBegan(step):
                agent.began["step", step] = self.now
            case StepEnded(step):
                self._note("step", agent.began.pop(("step", step)), rank=rank, step=step)
            case PhaseBegan(_, number):
                agent.began["phase", number] = self.now
            case PhaseEnded(step, number):
                began = agent.began.pop(("phase", number))
                self._note("phase", began, rank=rank, step=step, phase=number, dimension=agent.dimensions[number])

    def _computed(self, rank: int, step: int, op: int, name: str, began: float) -> None:
        self._note("compute", began, rank=rank, step=step, op=op, name=name, late_s=0.0)
        self._carry_out(rank, self._ranks[rank].executor.compute_done(op))

    # ---- communication ----------------------------------------------------------------------------------------

    def _start(self, rank: int, agent: _Rank, step: int, op: Communication, phase: int) -> None:
        waited = agent.blocked.pop(op.id, None)
        if waited is not None:
            intent, began = waited
            self._note(
                "wait", began, rank=rank, step=step, op=op.id, group=intent.group, index=intent.index, phase=phase
            )
        name = self._flow_name(rank, agent, op)
        flow = _Flow(op, step, phase, self._exchange(rank, op), name, self.now)
        agent.flows[name] = flow
        self._send(rank, agent, flow, flow.exchange.begin().send)
        for transfer in agent.early.pop(name, []):
            self._send(rank, agent, flow, flow.exchange.arrived(transfer).send)
        self._finish_if_done(rank, agent, flow)

    def _flow_name(self, rank: int, agent: _Rank, op: Communication) -> tuple[str, str, int]:
        """The same on all members: the group, the stream in it, and the number in that stream."""
        if isinstance(op, Collective):
            stream = "collective"
        else:
            stream = f"{rank}>{op.peer}" if isinstance(op, Send) else f"{op.peer}>{rank}"
        number = agent.count[op.group, stream]
        agent.count[op.group, stream] = number + 1
        return op.group, stream, number

    def _exchange(self, rank: int, op: Communication) -> Exchange:
        elements = elements_of(self.scale.emulated_bytes(op.bytes))
        if not isinstance(op, Collective):
            return (send_exchange if isinstance(op, Send) else recv_exchange)(op.peer, elements)
        members = self.program.groups[op.group].members
        plan = schedule_of(self.program, op)
        if id(plan) not in self._transfers:
            self._transfers[id(plan)] = _by_position(plan)
        position = members.index(rank)
        return collective_exchange(plan, members, rank, elements, self._transfers[id(plan)][position])

    def _send(self, rank: int, agent: _Rank, flow: _Flow, parts: list[Part]) -> None:
        for part in parts:
            flow.unsent += 1
            flow.sent_bytes += part.bytes
            end = self._wire_end(rank, agent, flow.op.group, part) + self.costs.alpha_s
            self._at(end, lambda part=part: self._arrived(rank, flow, part))  # type: ignore[misc]

    def _wire_end(self, rank: int, agent: _Rank, group: str, part: Part) -> float:
        domain = self._domain[group]
        forwarded = domain != "scale-out" or self._packet_rails
        ports = self.plan.ports_per_gpu if domain == "scale-out" else 1
        path = choose_path(agent.paths[group], rank, part.peer, part.lane, forwarded=forwarded, ports_per_gpu=ports)
        if path is None:
            raise ControlError(f"group {group} has no circuit from rank {rank} to rank {part.peer}")
        _, lane, peer, peer_lane = path
        return self._wires.send(self.now, domain, (rank, lane), (peer, peer_lane), part.bytes)

    def _arrived(self, rank: int, flow: _Flow, part: Part) -> None:
        """The last byte of ``part`` is at the peer, and acknowledged to ``rank``."""
        peer = self._ranks[part.peer]
        there = peer.flows.get(flow.name)
        if there is None:
            peer.early[flow.name].append(part.transfer)
        else:
            self._send(part.peer, peer, there, there.exchange.arrived(part.transfer).send)
            self._finish_if_done(part.peer, peer, there)
        flow.unsent -= 1
        self._finish_if_done(rank, self._ranks[rank], flow)

    def _finish_if_done(self, rank: int, agent: _Rank, flow: _Flow) -> None:
        if flow.unsent or not flow.exchange.received_all or flow.name not in agent.flows:
            return
        del agent.flows[flow.name]
        op = flow.op
        self._note(
            "communicate",
            flow.began,
            rank=rank,
            step=flow.step,
            op=op.id,
            name=op.name,
            group=op.group,
            dimension=self.program.groups[op.group].dimension,
            op_kind=op.kind if isinstance(op, Collective) else type(op).__name__.lower(),
            bytes=self.scale.emulated_bytes(op.bytes),
            sent_bytes=flow.sent_bytes,
            phase=flow.phase,
        )
        self._carry_out(rank, agent.executor.communication_done(op.id))

    # ---- control plane ----------------------------------------------------------------------------------------

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Ack():
                    self._at(self.now + self.costs.control_s / 2, lambda ack=action: self._acked(ack))  # type: ignore[misc]
                case CheckedIn():
                    self._checked_in[action.rank, action.group] = action
                case Darken(number, delay_s=delay_s):
                    install = self.costs.install_s if delay_s > 0 else 0.0
                    self._at(
                        self.now + delay_s + install,
                        lambda number=number: self._act(self._engine.lit(number, self.now)),  # type: ignore[misc]
                    )
                case Note():
                    self.events.append(action.event())
                case Refuse(rank, group, index, reason):
                    raise ControlError(f"rank {rank} was refused request {index} of group {group}: {reason}")
                case RegisterRefused(job, reason):
                    raise ControlError(f"job {job} was refused: {reason}")

    def _acked(self, ack: Ack) -> None:
        agent = self._ranks[ack.rank]
        agent.paths[ack.group] = ack.paths
        self._carry_out(ack.rank, agent.executor.acknowledged(ack.group, ack.index))

    def _waits_for(self, agent: _Rank) -> str:
        blocked = [intent.group for intent, _ in agent.blocked.values()]
        if blocked:
            return f"the circuits of group {blocked[0]}"
        return ", ".join(f"{f.op.name} in group {f.op.group}" for f in agent.flows.values()) or "another operation"


def _by_position(plan: Schedule) -> list[list[tuple[int, Transfer]]]:
    """By position: the transfers that it takes part in, with their numbers."""
    mine: list[list[tuple[int, Transfer]]] = [[] for _ in range(plan.n)]
    for number, transfer in enumerate(plan.transfers):
        mine[transfer.src].append((number, transfer))
        mine[transfer.dst].append((number, transfer))
    return mine
