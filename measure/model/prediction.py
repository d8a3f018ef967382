"""The prediction for each measurement: the decisions of a live run over ideal links.

The model drives the rank machines, schedules, engine and policy of a live run over ideal links, without packets. It
adds only times to the shared decisions: alpha-beta transfers (``measure.model.wires``), compute of exactly the given
duration, and a control path of constant delay. It writes the same timeline as a live run, which the same definitions
evaluate (``measure.metrics.metrics``), so that a difference between the two is caused by the machine and not by the
evaluation. Its clock counts wall-clock seconds of the emulator from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import NamedTuple

from controllers.circuits import torus_routes
from controllers.circuits.rotation import Cycle
from controllers.engine.actions import Ack
from controllers.engine.jobs import Job, Traffic
from controllers.policies.policy import Policy
from measure.metrics.metrics import PointMetrics, measure_point
from measure.metrics.point import Point
from measure.model.simulated_control import Costs, SimulatedControl
from measure.model.wires import Routing, Wires
from railyard.errors import ConfigError, ControlError
from railyard.loop import Timers
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.phases import Phase, all_phases
from workloads.program import Program, Send
from workloads.rank.actions import Action, Announce, Drain, OpenPath, RoundPause, RunCompute, SendPart
from workloads.rank.exchange import MessagePart
from workloads.rank.executor import StepEnded
from workloads.rank.flows import key_at_peer
from workloads.rank.in_flight import InFlight
from workloads.rank.machine import RankMachine
from workloads.rank.paths import PeerKey, path_at_peer
from workloads.rank.roll_call import Tell
from workloads.rank.schedule_facts import ScheduleFacts
from workloads.rank.slot_sender import LATE_S


class InSlot(NamedTuple):
    """A part of a message that is to be sent in slots of its peer."""

    in_flight: InFlight
    part: MessagePart
    sent: int = 0
    """Bytes of the part that were sent in earlier slots."""
    began: float | None = None
    """Time at which the first of those bytes was sent."""


@dataclass
class SlotLink:
    """Data that the ideal links of one rank carry in slots."""

    cut: list[InSlot] = field(default_factory=list)
    """Parts, or the rest of them, that did not fit into the slots of a rotation so far."""
    booked: dict[int, float] = field(default_factory=dict)
    """Time by lane at which all parts sent in the current slot will have left the port."""


class Simulation(Timers):
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
        profile_steps: int = 0,
        stale_step: int = 0,
        routing: Routing | None = None,
    ) -> None:
        super().__init__()
        self.program, self.plan, self.policy = program, plan, policy
        self.job, self.scale, self.steps, self.costs = job, scale, steps, costs
        self.provisioned, self.profile_steps, self.stale_step = provisioned, profile_steps, stale_step
        self.events: list[Event] = []
        self._wires = Wires(plan, self.at, routing)
        self._control = SimulatedControl(plan, costs, self._later, self._acked, self.events.append)
        self._facts = ScheduleFacts()
        self._goodput = {
            (port.rank, port.lane): port.rate_mbps * 1e6 / 8 * plan.goodput_share
            for switch in plan.network("rail")
            for port in switch.ports
        }
        self._ranks: list[RankMachine] = []
        self._slot_links = [SlotLink() for _ in range(program.ranks)]

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
        for rank, machine in enumerate(self._ranks):
            self._execute(rank, machine.begin(self.now, self.now))
        self._play()
        for rank, machine in enumerate(self._ranks):
            if not machine.finished:
                raise ControlError(
                    f"the predicted run stands still at {self.scale.real_s(self.now):.3f} s: rank {rank} waits for "
                    f"{machine.waits_for}"
                )
        return tuple(sorted(self.events, key=lambda e: e.t))

    def _rank(self, rank: int, phases: tuple[Phase, ...]) -> RankMachine:
        machine = RankMachine(
            self.program,
            rank,
            self.scale,
            phases,
            self.steps,
            ports_per_gpu=self.plan.ports_per_gpu,
            forwarding=all(switch.kind == "electrical" for switch in self.plan.network("rail")),
            provisioned=self.provisioned,
            profile_steps=self.profile_steps,
            stale_step=self.stale_step,
            facts=self._facts,
        )
        for group in self.program.groups.values():
            if rank in group.members:
                machine.paths.set_wired(group)
                answer = self._control.checked_in.get((rank, group.name))
                if answer is not None and (answer.asks or answer.paths):
                    machine.checked_in(group.name, asks=answer.asks, rotates=answer.rotates, paths=answer.paths)
        return machine

    # ---- time -------------------------------------------------------------------------------------------------

    def _later(self, seconds: float, callback: Callable[[float], None]) -> None:
        self.at(self.now + seconds, lambda: callback(self.now))

    def _play(self) -> None:
        while self.next_time < inf:
            self.step()

    # ---- actions of the ranks ---------------------------------------------------------------------------------

    def _execute(self, rank: int, actions: Iterable[Action]) -> None:
        machine = self._ranks[rank]
        for action in actions:
            match action:
                case SendPart(in_flight, part, path):
                    self._begin_send(rank, in_flight, part, path)
                case Announce(path=(_, _, peer, _) as path):
                    key, there = key_at_peer(action.flow, rank), path_at_peer(path, rank)
                    self._execute(peer, self._ranks[peer].credit(key, there, action.last_round, self.now))
                case Tell():
                    self._later(self.costs.alpha_s, partial(self._told, rank, action))
                case Drain(in_flight):
                    self._end(rank, in_flight)
                case RoundPause(seconds=seconds):
                    self.at(self.now + seconds, partial(self._end_pause, rank, action))
                case RunCompute(due):
                    self.at(due, lambda: self._execute(rank, machine.compute_done(self.now)))
                case Event():
                    self.events.append(action)
                case OpenPath() | StepEnded():
                    pass
                case _:
                    self._control.send(rank, action)

    def _told(self, rank: int, tell: Tell, now: float) -> None:
        self._execute(tell.rank, self._ranks[tell.rank].told(tell.flow, rank, tell.word, tell.number, now))

    def _end_pause(self, rank: int, pause: RoundPause) -> None:
        self._execute(rank, self._ranks[rank].paused(pause, self.now))

    def _end(self, rank: int, in_flight: InFlight) -> None:
        machine = self._ranks[rank]
        machine.close(in_flight)
        fields = {"rank": rank, "bytes": self.scale.emulated_bytes(in_flight.op.bytes), **in_flight.fields()}
        self.events.append(Event(in_flight.posted, "agent", "communicate", self.now, fields))
        self._execute(rank, machine.over(in_flight, self.now))

    # ---- links ------------------------------------------------------------------------------------------------

    def _begin_send(self, rank: int, in_flight: InFlight, part: MessagePart, path: PeerKey) -> None:
        if in_flight.in_slots(part):
            self._send_in_slot(rank, InSlot(in_flight, part))
            return
        self._send(rank, InSlot(in_flight, part), path)
        if self.program.eager and isinstance(in_flight.op, Send):  # the kernel buffers the whole message at once
            self.at(self.now, lambda: self._execute(rank, self._ranks[rank].buffered(in_flight, self.now)))

    def _send_in_slot(self, rank: int, item: InSlot) -> None:
        """Send the bytes that arrive before the slot ends; the rest waits for the next slot of its peer."""
        (in_flight, part, sent, first), link = item, self._slot_links[rank]
        slot_sender = in_flight.slot_sender
        assert slot_sender is not None
        if part.peer not in slot_sender.peers:
            link.cut.append(item)
            return
        path, end = self._ranks[rank].path(in_flight, part, incoming=False), slot_sender.end
        lane, left = path[1], part.bytes - sent
        rate = self._goodput[rank, lane]
        begin = max(self.now, link.booked.get(lane, 0.0))
        fits = left if end is None else min(left, max(0, int((end - LATE_S - begin) * rate)))
        link.booked[lane] = begin + fits / rate
        if fits == left:
            self._send(rank, item, path)
            return
        if fits:
            self._transmit(rank, path, fits, lambda began, ended: None)
            item = item._replace(sent=sent + fits, began=begin if first is None else first)
        link.cut.append(item)

    def _send(self, rank: int, item: InSlot, path: PeerKey) -> None:
        """Send a part without the bytes that were sent in earlier slots."""
        in_flight, part, sent, first = item
        times = self.program.repeats.get(in_flight.op.group, 1.0)

        def done(began: float, left: float) -> None:
            since = began if first is None else first
            self.at(left + times * self.costs.alpha_s, lambda: self._arrived(rank, in_flight, part, since))
            if part.transfer in in_flight.exchange.awaits_sent:
                self._execute(rank, self._ranks[rank].left(in_flight, part))

        self._transmit(rank, path, part.bytes - sent, done, times)

    def _transmit(
        self, rank: int, path: PeerKey, size: int, done: Callable[[float, float], None], times: float = 1.0
    ) -> None:
        domain, lane, peer, peer_lane = path
        self._wires.send(self.now, domain, (rank, lane), (peer, peer_lane), size, done, times)

    def _arrived(self, rank: int, in_flight: InFlight, part: MessagePart, began: float) -> None:
        """Handle the arrival of the last byte of ``part`` at the peer, which ``rank`` learns of at once."""
        peer, machine = self._ranks[part.peer], self._ranks[rank]
        self._execute(part.peer, peer.arrived(key_at_peer(in_flight.key, rank), part.transfer, began, self.now))
        self._execute(rank, machine.delivered(in_flight, part, self.now))
        self._execute(rank, machine.taken(in_flight, self.now))

    # ---- control plane ----------------------------------------------------------------------------------------

    def _acked(self, ack: Ack) -> None:
        machine, link, window = self._ranks[ack.rank], self._slot_links[ack.rank], ack.slot_window
        if window is None:
            self._execute(ack.rank, machine.acknowledged(ack.group, ack.index, ack.paths, self.now))
            return
        actions = machine.slot_began(ack.group, ack.index, window, ack.paths, self.now)
        link.booked.clear()
        left, link.cut = link.cut, []
        for item in left:
            self._send_in_slot(ack.rank, item)
        self._execute(ack.rank, actions)


__all__ = ["Costs", "Prediction", "predict"]

DEFAULT_STEPS = 3


@dataclass(frozen=True)
class Prediction(PointMetrics):
    """The predicted metrics of a run; all times of the job in real seconds.

    ``step_times_s`` holds every step, the first included; the numbers per step are of the steps after it. ``events``
    are the whole predicted timeline on the emulator's clock (wall-clock seconds from 0), for figures.
    """

    step_time_s: float
    events: tuple[Event, ...]


def predict(
    program: Program,
    plan: FabricPlan,
    policy: Policy | None,
    mode: str,
    delay_s: float = 0.0,
    link_recovery_s: float = 0.0,
    scale: Scale | None = None,
    steps: int = DEFAULT_STEPS,
    costs: Costs | None = None,
    avoid: frozenset[int] = frozenset(),
    cycle: Cycle | None = None,
    profile_steps: int = 0,
    stale_step: int = 0,
    traffic: Traffic | None = None,
) -> Prediction:
    """Predict ``steps`` steps of ``program`` on ``plan``.

    - ``plan``: contains emulated rates, so ``scale`` (default 1) must be the one it was made with;
    - ``policy``: a new policy object for ``plan``; None for mode ``native``;
    - ``mode``: with ``provisioned``, ranks request circuits in advance, else on demand;
    - ``delay_s`` and ``link_recovery_s``: real seconds;
    - ``avoid``: dead chips, around which the routes over links between switches lead;
    - ``cycle``: the rotation of the job, in wall-clock seconds and emulated bytes;
    - ``profile_steps``: first steps in which mode provisioned learns the order of the phases; the warm-up, if any;
    - ``stale_step``: the step in which mode provisioned has a stale profile (0: none); per-step numbers leave it out;
    - ``traffic``: for policies that weigh changes, in wall-clock seconds and emulated bytes.

    Several jobs on one fabric are one program with groups that have no rank in common; ranks in no group have no
    operations. Raises ``ConfigError`` if plan and program do not match, and ``ControlError`` if the control plane
    refuses a request, if no route is left, or if the run comes to a standstill.
    """
    if program.ranks != plan.ranks:
        raise ConfigError(f"program {program.name} has {program.ranks} ranks and the fabric {plan.ranks}; both must "
                          "be equal", key="workload")  # fmt: skip
    if (policy is None) != (mode == "native"):
        raise ConfigError("mode native has no policy, every other mode needs one", key="mode")
    scale = scale or Scale(1.0)
    job = Job(
        name=program.name,
        groups=tuple(program.groups.values()),
        mode=mode,
        reconfiguration_delay_s=scale.emulated_s(delay_s),
        link_recovery_s=scale.emulated_s(link_recovery_s),
        cycle=cycle,
        traffic=traffic,
    )
    run = Simulation(program, plan, policy, job, scale, steps, costs or Costs(), provisioned=mode == "provisioned",
                     profile_steps=profile_steps, stale_step=stale_step, routing=_routing(plan, avoid))  # fmt: skip
    events = run.run()
    point = Point(0, mode, plan, program.groups, scale, delay_s, link_recovery_s,
                  warmup_steps=profile_steps or None, stale_step=stale_step or None)  # fmt: skip
    metrics = vars(measure_point(point, events))
    return Prediction(**{**metrics, "step_time_s": metrics["step_time_s"] or 0.0, "events": events})


def _routing(plan: FabricPlan, avoid: frozenset[int]) -> Routing | None:
    """Routes over the links between the switches of ``plan``; None if it has no such links."""
    if not plan.links:
        return None
    tables = torus_routes.routes(plan, avoid)
    return lambda src, dst: torus_routes.path(plan, tables, src, dst)
