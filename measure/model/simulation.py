"""Simulates a run without packets: the executors, schedules, engine and policy of a live run over ideal links.

The model adds only times to the shared decisions: alpha-beta transfers (``measure.model.wires``), compute of exactly
the given duration, and a control path of constant delay. It writes the same timeline as a live run, so that the same
definitions (``measure.metrics.metrics``) evaluate both. Its clock counts wall-clock seconds of the emulator from 0.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from controllers.engine.actions import Ack
from controllers.engine.jobs import Job
from controllers.policies.policy import Policy
from measure.model.exchange_plans import ExchangePlans
from measure.model.simulated_control import Costs, SimulatedControl
from measure.model.simulated_rank import InSlot, SimulatedFlow, SimulatedRank
from measure.model.wires import Routing, Wires
from railyard.errors import ControlError
from railyard.scale import Scale, goodput_share
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.agent.circuit_requests import CircuitRequests
from workloads.agent.exchange import Exchange, MessagePart, Progress
from workloads.agent.executor import (
    Blocked,
    Executor,
    PhaseBegan,
    PhaseEnded,
    RankAction,
    ReleaseCircuits,
    RequestCircuits,
    StartCommunication,
    StartCompute,
    StepBegan,
    StepEnded,
)
from workloads.agent.transport.pacing import LATE_S
from workloads.agent.transport.paths import choose_path, wired_paths
from workloads.agent.transport.slot_sender import SlotScheduler
from workloads.phases import Phase, all_phases
from workloads.program import Collective, Communication, Domain, Program, Send


class Simulation:
    """Simulates ``steps`` steps of ``program``. ``policy`` None: no control plane (mode native).

    ``routing`` is passed to ``Wires``. ``run`` raises ``ControlError`` if the control plane refuses a request, if a
    group has no path between two of its members, or if the run comes to a standstill.
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
        routing: Routing | None = None,
    ) -> None:
        self.program, self.plan, self.policy = program, plan, policy
        self.job, self.scale, self.steps, self.costs = job, scale, steps, costs
        self.provisioned = provisioned
        self.events: list[Event] = []
        self.now = 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._wires = Wires(plan, self._at, routing)
        self._control = SimulatedControl(plan, costs, self._later, self._acked, self.events.append)
        self._packet_rails = all(switch.kind == "electrical" for switch in plan.network("rail"))
        self._domain: dict[str, Domain] = {name: group.domain for name, group in program.groups.items()}
        self._goodput = {
            (port.rank, port.lane): port.rate_mbps * 1e6 / 8 * goodput_share(plan.mtu)
            for switch in plan.network("rail")
            for port in switch.ports
        }
        self._exchanges = ExchangePlans(program, scale)

    def run(self) -> tuple[Event, ...]:
        """Simulate the whole run and return its timeline, sorted by time."""
        if self.policy is not None:
            self._control.register(self.job, self.policy)
            self._play()
            for group in self.job.groups:
                for rank in group.members:
                    self._control.check_in(rank, group.name, self.now)
        found = all_phases(self.program)
        self._ranks = [self._rank(rank, found[rank]) for rank in range(self.program.ranks)]
        for rank, agent in enumerate(self._ranks):
            self._execute(rank, agent.executor.begin())
        self._play()
        for rank, agent in enumerate(self._ranks):
            if not agent.executor.finished:
                raise ControlError(
                    f"the predicted run stands still at {self.scale.real_s(self.now):.3f} s: rank {rank} waits for "
                    f"{agent.waits_for}"
                )
        return tuple(sorted(self.events, key=lambda e: e.t))

    # ---- time -------------------------------------------------------------------------------------------------

    def _at(self, time: float, callback: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._timers, (time, self._number, callback))

    def _play(self) -> None:
        while self._timers:
            self.now, _, callback = heapq.heappop(self._timers)
            callback()

    def _note(self, kind: str, began: float, **fields: object) -> None:
        self.events.append(Event(began, "agent", kind, self.now, fields))

    # ---- agents -----------------------------------------------------------------------------------------------

    def _rank(self, rank: int, found: tuple[Phase, ...]) -> SimulatedRank:
        mine = [group for group in self.program.groups.values() if rank in group.members]
        answers = {name: answer for (r, name), answer in self._control.checked_in.items() if r == rank}
        requesting = {name for name, answer in answers.items() if answer.asks}
        circuits = {name for name in requesting if self.program.groups[name].parent}
        executor = Executor(
            self.program.operations[rank],
            [phase.operations for phase in found],
            requesting - circuits,
            self.steps,
            provisioned=self.provisioned,
        )
        circuit_clients: CircuitRequests[SimulatedFlow] = CircuitRequests(
            rank,
            lambda message: self._control.send(rank, message),
            lambda kind, t, _, **f: self._note(kind, t, rank=rank, **f),
        )
        circuit_clients.groups = circuits
        slot_scheduler: SlotScheduler[InSlot] = SlotScheduler(rank, lambda message: self._control.send(rank, message))
        agent = SimulatedRank(executor, tuple(phase.dimension for phase in found), circuit_clients, slot_scheduler)
        for group in mine:
            final = answers.get(group.name)
            wired = wired_paths(group, self.plan.ports_per_gpu)
            agent.paths[group.name] = final.paths if final is not None and final.paths else wired
        return agent

    def _execute(self, rank: int, actions: Iterable[RankAction]) -> None:
        for action in actions:
            self._execute_one(rank, self._ranks[rank], action)

    def _execute_one(self, rank: int, agent: SimulatedRank, action: RankAction) -> None:
        match action:
            case StartCompute(step, op):
                began, due = self.now, self.now + self.scale.emulated_s(op.seconds_in(step))
                self._at(due, lambda: self._computed(rank, step, op.id, op.name, began))
            case StartCommunication(step, op, phase):
                self._start(rank, agent, step, op, phase)
            case Blocked():
                agent.blocked[action.op.id] = (action, self.now)
            case RequestCircuits():
                self._control.send(rank, action)
            case ReleaseCircuits(group):
                agent.slot_scheduler.end(group)
                if agent.deferred_release.may_go(action):
                    self._control.send(rank, action)
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
        self._execute(rank, self._ranks[rank].executor.compute_done(op))

    # ---- communication ----------------------------------------------------------------------------------------

    def _start(self, rank: int, agent: SimulatedRank, step: int, op: Communication, phase: int) -> None:
        waited = agent.blocked.pop(op.id, None)
        if waited is not None:
            action, began = waited
            self._note(
                "wait", began, rank=rank, step=step, op=op.id, group=action.group, index=action.index, phase=phase
            )
        flow = SimulatedFlow(op, step, phase, Exchange(), agent.next_name(rank, op), self.now)
        self._exchanges.plan(rank, agent, flow)
        flow.unsent = len(flow.exchange.outgoing)
        agent.flows[flow.name] = flow
        if flow.circuit_client is not None:
            agent.circuit_clients.send(flow, flow.circuit_client.begin(), self.now)
        self._advance(rank, flow, flow.exchange.begin())
        if self.program.eager and isinstance(op, Send):
            flow.buffered = True  # the kernel buffers the whole message at once
            agent.deferred_release.began(op.group)
            self._at(self.now, lambda: self._execute(rank, agent.executor.communication_done(op.id)))
        for part, began, ended in agent.unexpected.pop(flow.name, []):
            self._take(rank, flow, flow.exchange.incoming[part.transfer], began, ended)
        self._finish_if_done(rank, agent, flow)

    def _advance(self, rank: int, flow: SimulatedFlow, progress: Progress) -> None:
        for action, part in progress.steps:
            if action == "send" and flow.slot_sender is not None and not part.scale_up:
                flow.slot_sender.offer(part.peer, InSlot(flow, part))
                self._send_in_slot(rank, flow.slot_sender.free())
            elif action == "send":
                flow.held.append(part)
                self._send_held(rank, flow)
            elif action == "announce":
                flow.takes[part.path] = part.round
                sender = self._ranks[part.peer].flows.get(flow.name)
                if sender is not None:
                    self._send_held(part.peer, sender)
        if flow.slot_sender is not None:
            flow.slot_sender.report()

    def _send_in_slot(self, rank: int, free: Iterable[InSlot]) -> None:
        """Send the bytes that arrive before the slot ends; the rest waits for the next slot of its peer."""
        for item in free:
            slot_sender = item.flow.slot_sender
            assert slot_sender is not None
            if item.part.peer in slot_sender.peers:
                self._send_until(rank, item, slot_sender.lanes(item.part.peer).out, slot_sender.end)
            else:
                self._ranks[rank].cut.append(item)

    def _send_until(self, rank: int, item: InSlot, lane: int, end: float | None) -> None:
        flow, part, agent = item.flow, item.part, self._ranks[rank]
        left, rate = part.bytes - item.sent, self._goodput[rank, lane]
        begin = max(self.now, agent.booked.get(lane, 0.0))
        now = left if end is None else min(left, max(0, int((end - LATE_S - begin) * rate)))
        agent.booked[lane] = begin + now / rate
        if now == left:
            self._send(rank, flow, part, item.sent, item.began)
            return
        if now:
            domain, mine, theirs = self._ports(rank, flow, part)
            self._wires.send(self.now, domain, (rank, mine), (part.peer, theirs), now, lambda began, ended: None)
            item = item._replace(sent=item.sent + now, began=begin if item.began is None else item.began)
        agent.cut.append(item)

    def _send_held(self, rank: int, flow: SimulatedFlow) -> None:
        """Send the held parts that have receiver credit or a circuit by now."""
        waiting, flow.held = flow.held, []
        for part in waiting:
            if self._may_go(rank, flow, part):
                self._send(rank, flow, part)
            else:
                flow.held.append(part)

    def _may_go(self, rank: int, flow: SimulatedFlow, part: MessagePart) -> bool:
        if flow.circuit_client is not None and flow.on_circuit(part):
            return flow.circuit_client.is_up(part.transfer)
        if self.program.eager and isinstance(flow.op, Send):
            return True
        there = self._ranks[part.peer].flows.get(flow.name)
        return there is not None and there.takes.get((rank, part.lane, part.scale_up), -1) >= part.round

    def _send(
        self, rank: int, flow: SimulatedFlow, part: MessagePart, sent: int = 0, first: float | None = None
    ) -> None:
        """Send ``part`` without the bytes already ``sent`` in earlier slots, the first of them at ``first``."""
        flow.sent_bytes += part.bytes
        domain, mine, theirs = self._ports(rank, flow, part)

        def done(began: float, left: float) -> None:
            since = began if first is None else first
            self._at(left + self.costs.alpha_s, lambda: self._arrived(rank, flow, part, since))
            if part.transfer in flow.exchange.awaits_sent:
                self._advance(rank, flow, flow.exchange.sent(part.transfer))

        self._wires.send(self.now, domain, (rank, mine), (part.peer, theirs), part.bytes - sent, done)

    def _ports(self, rank: int, flow: SimulatedFlow, part: MessagePart) -> tuple[Domain, int, int]:
        """(network, own lane, the peer's lane) for a part that ``rank`` sends."""
        group = flow.op.group
        domain = self._domain[group]
        if part.scale_up:
            return "scale-up", 0, 0
        if flow.slot_sender is not None:
            lanes = flow.slot_sender.lanes(part.peer)
            return domain, lanes.out, lanes.into
        if flow.circuit_client is not None and flow.on_circuit(part):
            return domain, *flow.circuit_client.lanes(part.transfer)
        forwarded = domain != "scale-out" or self._packet_rails
        ports = self.plan.ports_per_gpu if domain == "scale-out" else 1
        path = choose_path(
            self._ranks[rank].paths[group], rank, part.peer, part.lane, forwarded=forwarded, ports_per_gpu=ports
        )
        if path is None:
            raise ControlError(f"group {group} has no circuit from rank {rank} to rank {part.peer}")
        return domain, path[1], path[3]

    def _arrived(self, rank: int, flow: SimulatedFlow, part: MessagePart, began: float) -> None:
        """Handle the arrival of the last byte of ``part`` at the peer, which ``rank`` learns of at once."""
        peer = self._ranks[part.peer]
        there = peer.flows.get(flow.name)
        if there is None:
            peer.unexpected[flow.name].append((part, began, self.now))
        else:
            self._take(part.peer, there, there.exchange.incoming[part.transfer], began, self.now)
        flow.unsent -= 1
        if flow.slot_sender is not None and not part.scale_up:
            flow.slot_sender.acknowledged()
        self._delivered(rank, flow, part)
        self._finish_if_done(rank, self._ranks[rank], flow)

    def _take(self, rank: int, flow: SimulatedFlow, part: MessagePart, began: float, ended: float) -> None:
        """Handle the reception of ``part`` on ``rank``; its bytes arrived from ``began`` to ``ended``."""
        fields = {
            "rank": rank,
            "step": flow.step,
            "op": flow.op.id,
            "transfer": part.transfer,
            "round": part.round,
            "chunk": part.chunk,
            "peer": part.peer,
            "bytes": part.bytes,
            "reduce": part.reduce,
        }
        self.events.append(Event(began, "agent", "transfer", ended, fields))
        progress = flow.exchange.arrived(part.transfer)
        self._delivered(rank, flow, part)
        self._advance(rank, flow, progress)
        self._finish_if_done(rank, self._ranks[rank], flow)

    def _delivered(self, rank: int, flow: SimulatedFlow, part: MessagePart) -> None:
        """Tell the circuit client that no byte of ``part`` is in flight, so that its circuit can be released."""
        if flow.circuit_client is not None and flow.on_circuit(part):
            self._ranks[rank].circuit_clients.send(flow, flow.circuit_client.over(part.transfer), self.now)

    def _finish_if_done(self, rank: int, agent: SimulatedRank, flow: SimulatedFlow) -> None:
        if flow.unsent or not flow.exchange.received_all or flow.name not in agent.flows:
            return
        if flow.circuit_client is not None and not flow.circuit_client.finished:
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
            posted=flow.began,
            payload_bytes=flow.sent_bytes,
        )
        if flow.buffered:
            release = agent.deferred_release.ended(op.group)
            if release is not None:
                self._control.send(rank, release)
            return
        self._execute(rank, agent.executor.communication_done(op.id))

    # ---- control plane ----------------------------------------------------------------------------------------

    def _later(self, seconds: float, callback: Callable[[float], None]) -> None:
        self._at(self.now + seconds, lambda: callback(self.now))

    def _acked(self, ack: Ack) -> None:
        agent = self._ranks[ack.rank]
        if ack.group in agent.circuit_clients.groups:
            flow, _ = agent.circuit_clients.acknowledged(ack.group, ack.index, self.now)
            self._send_held(ack.rank, flow)
            return
        if ack.slot_window is not None:
            agent.slot_scheduler.begin_slot(ack.group, ack.index, ack.slot_window, ack.paths)
            agent.booked.clear()
            left, agent.cut = agent.cut, []
            slot_sender = agent.slot_scheduler.of(ack.group)
            self._send_in_slot(ack.rank, [*left, *(slot_sender.free() if slot_sender is not None else ())])
        if ack.slot_window is None or ack.slot_window.number == 0:
            agent.paths[ack.group] = ack.paths
            self._execute(ack.rank, agent.executor.acknowledged(ack.group, ack.index))
        agent.slot_scheduler.report(ack.group)
