"""The operations of the job channel and of REST: each turns a request into calls of the engine and a reply.

``controllers.northbound.messages`` declares the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from controllers.circuits.circuits import Circuit, Matching
from controllers.engine.actions import Action, Note
from controllers.engine.engine import Engine
from controllers.mesh.switch import STATES, PipSwitch
from controllers.northbound import messages
from controllers.northbound.pending_replies import PendingReplies, PendingReply, Requester, failure, success
from controllers.openflow.datapaths import Datapaths
from controllers.policies.catalog import POLICIES, load_policy
from railyard.errors import CircuitError, ConfigError, ControlError
from topos.plan import FabricPlan


class Sessions:
    """The connections that act for each rank. Those of an incarnation that is over are *stale* and are not served."""

    def __init__(self) -> None:
        self._sessions: dict[int, dict[Requester, None]] = {}
        self._stale: set[Requester] = set()

    def has(self, requester: Requester, rank: int) -> bool:
        return requester in self._sessions.get(rank, ())

    def is_stale(self, requester: Requester) -> bool:
        return requester in self._stale

    def check_current(self, requester: Requester, rank: int) -> None:
        if requester in self._stale:
            raise ControlError(
                f"this connection belongs to an earlier incarnation of the job of rank {rank}; open a new one"
            )

    def add(self, requester: Requester, rank: int) -> None:
        self._sessions.setdefault(rank, {})[requester] = None

    def close(self, requester: Requester) -> list[int]:
        """Forget ``requester``, whose connection has ended; the ranks that it acted for in this incarnation."""
        self._stale.discard(requester)
        ranks = [rank for rank, requesters in self._sessions.items() if requester in requesters]
        for rank in ranks:
            self.drop(rank, requester)
        return ranks

    def end_incarnation(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._stale.update(self._sessions.pop(rank, ()))

    def forget(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._sessions.pop(rank, None)

    def drop(self, rank: int, requester: Requester) -> None:
        del self._sessions[rank][requester]
        if not self._sessions[rank]:
            del self._sessions[rank]


Operation = Callable[[Any, PendingReply, float], Iterable[Action]]
OnRecord = Callable[[int | None, float, str | None], None]
"""Called with a point, the time from which on events are its own, and the results folder that has it."""


class Operations:
    """Each operation is the method ``_OP``; it returns actions of the engine, and ``pending_replies`` has the replies.

    ``arm_heartbeat_alarm`` is called after a heartbeat that may have started the watch of a rank, ``on_record`` with
    the point whose events begin (None: none) and the time from which on they are its own.
    """

    def __init__(
        self, plan: FabricPlan, engine: Engine, datapaths: Datapaths, arm_heartbeat_alarm: Callable[[], None]
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._datapaths = datapaths
        self._arm_heartbeat_alarm = arm_heartbeat_alarm
        self.on_record: OnRecord = lambda point, since, results: None
        self.sessions = Sessions()
        self.pending_replies = PendingReplies(engine.changes_since)

    def execute(self, request: messages.AnyRequest, requester: Requester, now: float) -> Iterable[Action]:
        """Execute one request; its answer is then ready in ``pending_replies``, or follows from later actions."""
        operation: Operation = getattr(self, f"_{request.op}")
        return operation(request, (requester, request.id), now)

    def take_heartbeat(self, request: messages.AnyRequest, requester: Requester, now: float) -> bool:
        """Take a heartbeat of a rank that is already watched, without the lock; False if it is none of those."""
        return (
            isinstance(request, messages.Alive)
            and self.sessions.has(requester, request.rank)
            and self._engine.liveness.heard(request.rank, now, request.answers)
        )

    def closed(self, requester: Requester, now: float) -> list[Action]:
        """Forget a connection that has ended; the actions that follow for ranks of its sessions."""
        self.pending_replies.forget(requester)
        return [action for rank in self.sessions.close(requester) for action in self._engine.gone(rank, now)]

    # ---- jobs -------------------------------------------------------------------------------------------------

    def _register(self, request: messages.Register, reply_to: PendingReply, now: float) -> Iterable[Action]:
        if request.policy not in POLICIES and not reply_to[0].trusted:
            raise ConfigError(
                f"{request.policy} names code to load, which only the user of the controller may; use one of "
                f"{', '.join(POLICIES)}",
                key="policy",
            )
        missing = self._datapaths.missing()
        if missing:
            raise ControlError(f"{missing[0]} {self._datapaths.hopeless(missing[0])}, so no job can start")
        policy = load_policy(request.policy, self._plan)
        actions = self._engine.register(request.job, policy, now, resumes=request.resumes)
        self.pending_replies.registrations[request.job.name] = reply_to
        return actions

    def _watch(self, request: messages.Watch, reply_to: PendingReply, now: float) -> Iterable[Action]:
        self._engine.registry.job(request.job)
        self.pending_replies.watch(request.job, request.seen, reply_to)
        return ()

    def _restart(self, request: messages.Restart, reply_to: PendingReply, now: float) -> Iterable[Action]:
        actions = self._engine.restart(request.job, now)
        membership = self._engine.registry.job(request.job)
        self.sessions.end_incarnation(membership.ever)
        answer = success(number=membership.number, state=membership.state, members=membership.members)
        self.pending_replies.reply(reply_to, answer)
        return actions

    def _finish(self, request: messages.Finish, reply_to: PendingReply, now: float) -> Iterable[Action]:
        membership = self._engine.registry.job(request.job)
        actions = self._engine.finish(request.job, now)
        self.sessions.forget(membership.ever)
        self.pending_replies.forget_job(request.job, membership.readiness, f"job {request.job} was finished")
        self.pending_replies.reply(reply_to)
        return actions

    def _record(self, request: messages.RecordRequest, reply_to: PendingReply, now: float) -> Iterable[Action]:
        if not reply_to[0].trusted:
            raise ControlError("only the user of the controller says where its events go")
        self.on_record(request.point, request.since, request.results)
        self.pending_replies.reply(reply_to)
        return ()

    def _jobs(self, request: messages.Jobs, reply_to: PendingReply, now: float) -> Iterable[Action]:
        self.pending_replies.reply(reply_to, success(jobs=describe_jobs(self._engine)))
        return ()

    # ---- agents -----------------------------------------------------------------------------------------------

    def _resume(self, request: messages.Resume, reply_to: PendingReply, now: float) -> Iterable[Action]:
        actions = self._engine.resume(request.job, request.rank, request.acknowledged, request.held, now)
        self.sessions.add(reply_to[0], request.rank)
        self.pending_replies.reply(reply_to)
        return actions

    def _checkin(self, request: messages.CheckIn, reply_to: PendingReply, now: float) -> Iterable[Action]:
        return self._take(request, None, reply_to, now, self._engine.check_in)

    def _request(self, request: messages.CircuitRequest, reply_to: PendingReply, now: float) -> Iterable[Action]:
        return self._take(request, request.index, reply_to, now, partial(self._engine.request, index=request.index))

    def _take(
        self,
        request: messages.MembersRequest,
        index: int | None,
        reply_to: PendingReply,
        now: float,
        take: Callable[..., list[Action]],
    ) -> Iterable[Action]:
        """Have the engine ``take`` a request of each of its ranks, which the answer to one of them answers."""
        self.sessions.check_current(reply_to[0], request.rank)
        actions: list[Action] = []
        with self._answering(reply_to, actions):
            for rank, asked in request.ranks(now):
                actions += take(rank, request.group, now=asked)
                self.sessions.add(reply_to[0], rank)
            self.pending_replies.wait([(rank, request.group, index) for rank, _ in request.ranks(now)], reply_to)
        return actions

    @contextmanager
    def _answering(self, reply_to: PendingReply, actions: Sequence[Action]) -> Iterator[None]:
        """If the engine refuses one of several ranks, have ``actions`` for those before it done, and answer so."""
        try:
            yield
        except ControlError as error:
            if not actions:
                raise
            self.pending_replies.reply(reply_to, failure(error))

    def _release(self, request: messages.Release, reply_to: PendingReply, now: float) -> Iterable[Action]:
        actions: list[Action] = []
        with self._answering(reply_to, actions):
            for rank, _ in () if self.sessions.is_stale(reply_to[0]) else request.ranks(now):
                actions += self._engine.release(rank, request.group, request.index, now)
                self.pending_replies.take((rank, request.group, request.index))
            self.pending_replies.reply(reply_to)
        return actions

    def _moved(self, request: messages.MovedReport, reply_to: PendingReply, now: float) -> Iterable[Action]:
        self.sessions.check_current(reply_to[0], request.rank)
        return self._engine.moved(request.rank, request.group, request.index, request.slot, request.idle, now)

    def _leave(self, request: messages.Leave, reply_to: PendingReply, now: float) -> Iterable[Action]:
        if not self.sessions.has(reply_to[0], request.rank):
            return ()
        self.sessions.drop(request.rank, reply_to[0])
        return self._engine.gone(request.rank, now)

    def _alive(self, request: messages.Alive, reply_to: PendingReply, now: float) -> Iterable[Action]:
        self.sessions.check_current(reply_to[0], request.rank)
        self._engine.alive(request.job, request.rank, now, request.answers)
        self.sessions.add(reply_to[0], request.rank)
        self._arm_heartbeat_alarm()
        return ()

    # ---- people and scripts -----------------------------------------------------------------------------------

    def _failed(self, request: messages.Failed, reply_to: PendingReply, now: float) -> Iterable[Action]:
        actions = self._engine.chip_failed(request.rank, request.cause, now)
        by_hand = not reply_to[0].trusted
        if by_hand and not actions:
            raise ControlError(f"rank {request.rank} has failed already")
        self.pending_replies.reply(reply_to)
        fields = {"what": "fail-chip", "rank": request.rank, "cause": request.cause}
        return [Note("manual", now, fields=fields), *actions] if by_hand else actions

    def _circuits(self, request: messages.Circuits, reply_to: PendingReply, now: float) -> Iterable[Action]:
        switches = describe_switches(self._plan, self._datapaths, self._engine)
        self.pending_replies.reply(reply_to, success(switches=switches))
        return ()

    def _rewire(self, request: messages.Rewire, reply_to: PendingReply, now: float) -> Iterable[Action]:
        matching = Matching(Circuit(*pair) for pair in request.circuits)
        fields = {"what": "rewire", "rail": request.switch, "circuits": request.circuits, "update": request.update}
        return self._engine.rewire(
            request.switch,
            matching,
            request.update,
            now,
            delay_s=request.delay_s,
            ticket=reply_to,
            manual=None if reply_to[0].trusted else fields,
        )

    def _gates(self, request: messages.Gates, reply_to: PendingReply, now: float) -> Iterable[Action]:
        """Replace the circuits of a mesh, like any rewiring; ``CircuitError`` if the switch is none."""
        device = self._engine.optical.switch(request.switch)
        if not isinstance(device, PipSwitch):
            raise CircuitError(f"{request.switch} is not made of a mesh and has no gates; set its circuits instead")
        wanted = device.with_gates([gate == "cross" for gate in request.gates], request.blocked)
        return self._engine.rewire(
            request.switch,
            wanted,
            "overwrite",
            now,
            delay_s=request.delay_s,
            ticket=reply_to,
            manual=None if reply_to[0].trusted else {"what": "gates", "rail": request.switch},
        )

    def _fault(self, request: messages.Fault, reply_to: PendingReply, now: float) -> Iterable[Action]:
        fails, by_hand = request.state == "failed", not reply_to[0].trusted
        if fails:
            how = "was failed over REST" if by_hand else None
            actions = self._engine.port_failed(request.switch, request.port, now, how)
        else:
            actions = self._engine.port_restored(request.switch, request.port, now)
        if not actions:
            state = "has failed already" if fails else "has not failed; only a port that has failed can be restored"
            raise ControlError(f"port {request.port} of {request.switch} {state}")
        self.pending_replies.reply(reply_to)
        fields = {"what": "fail" if fails else "restore", "rail": request.switch, "ports": [request.port]}
        return [Note("manual", now, fields=fields), *actions] if by_hand else actions


def describe_switches(plan: FabricPlan, datapaths: Datapaths, engine: Engine) -> list[dict[str, Any]]:
    """All switches as plain data: circuits and port states of optical ones, and the mesh of those made of one."""
    switches = []
    for switch in plan.switches:
        datapath = datapaths.connected.get(switch.name)
        entry: dict[str, Any] = {
            "name": switch.name,
            "dpid": switch.dpid,
            "kind": switch.kind,
            "network": switch.network,
            "connected": datapath is not None and datapath.filled,
        }
        device = engine.optical.switches.get(switch.name)
        if device is not None:
            entry["circuits"] = [list(c.ports) for c in device.target]
            entry["ports"] = {str(port): state for port, state in device.states().items()}
        if isinstance(device, PipSwitch):
            entry["mesh"] = describe_mesh(device)
        switches.append(entry)
    return switches


def describe_mesh(device: PipSwitch) -> dict[str, Any]:
    """The mesh inside a switch as plain data.

    ``ports`` are the mesh ports behind the ports of the switch (in order), ``gates`` the state of every gate,
    ``blocked`` the ports without a circuit, ``paths`` the gates and the latency (us) of each circuit.
    """
    states = device.states()
    return {
        "width": device.mesh.width,
        "height": device.mesh.height,
        "ports": list(device.mesh.ports),
        "gates": [STATES[crossed] for crossed in device.layout.routed.states],
        "blocked": [port for port in states if device.target.peer(port) is None],
        "paths": [
            {"circuit": list(circuit.ports), "gates": list(path), "latency_us": device.latency_us(circuit)}
            for circuit in device.target
            for path in [device.path(circuit)]
        ],
        "gate_latency_us": device.mesh.gate_latency_us,
        "latency": device.latency,
    }


def describe_jobs(engine: Engine) -> list[dict[str, Any]]:
    return [
        {
            "name": job.name,
            "state": membership.state,
            "changes": membership.number,
            "dead": membership.dead,
            "reason": membership.reason,
            "members": membership.ranks,
            "mode": job.mode,
            "reconfiguration_delay_s": job.reconfiguration_delay_s,
            "link_recovery_s": job.link_recovery_s,
            "groups": job.groups,
        }
        for membership in engine.registry.jobs.values()
        for job in [membership.job]
    ]
