"""The communications of one rank as a state machine: which bytes may go by which path now, and what was received. Pure.

A receiver that has reached an operation says so with a receiver credit on every path that it will receive on; the
sender's data waits for it. So data never meets a rank that has not posted its operation (as with NCCL). Three cases
need no credit: a circuit that both ends requested, the slot of a rotation, and the sends of an eager program, whose
receiver keeps unexpected messages. An operation is done when everything has arrived, everything was taken from this
rank, and nothing of it is in flight any more.

``Credits``: up to which round a receiver takes the data of a flow, and since when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from railyard.errors import ControlError, VerifyError
from railyard.scale import Scale
from railyard.timeline import Event
from workloads.collectives.catalog import schedule_of
from workloads.collectives.stragglar import eager_pieces, eager_whole
from workloads.program import Collective, Communication, Program, Recv, Send
from workloads.rank.actions import Action, Announce, Drain, OpenPath, RoundPause, SendPart
from workloads.rank.circuit_client import circuit_client_of
from workloads.rank.exchange import (
    ExchangePlans,
    MessagePart,
    Step,
    collective_exchange,
    elements_of,
    on_circuits,
    recv_exchange,
    send_exchange,
)
from workloads.rank.executor import Blocked, ReleaseCircuits, RequestCircuits
from workloads.rank.flows import Flow, FlowKey, flow_names
from workloads.rank.in_flight import InFlight, SlotMessage, UnexpectedPart
from workloads.rank.paths import Paths, PeerKey
from workloads.rank.roll_call import FirstPhase, RollCall, Tell, Word
from workloads.rank.schedule_facts import ScheduleFacts
from workloads.rank.slot_sender import SlotSender
from workloads.rank.tensors import Floats, Layout
from workloads.schedule import Schedule


class Credits:
    """The latest credit of each flow on each path."""

    def __init__(self) -> None:
        self._of: dict[FlowKey, dict[PeerKey, tuple[int, float]]] = {}

    def take(self, key: FlowKey, path: PeerKey, last_round: int, since: float) -> None:
        """Note that the receiver of flow ``key`` takes all rounds up to ``last_round`` by ``path``."""
        if last_round > self.of(key, path)[0]:
            self._of.setdefault(key, {})[path] = last_round, since

    def of(self, key: FlowKey, path: PeerKey) -> tuple[int, float]:
        """The last round that the receiver of flow ``key`` takes by ``path`` (-1: none yet), and since when."""
        return self._of.get(key, {}).get(path, (-1, 0.0))

    def forget(self, key: FlowKey) -> None:
        self._of.pop(key, None)


class Communications:
    """All communications of ``rank`` in ``program``.

    Events come in as method calls, each with the time ``now`` if it matters; actions come out as a list, to be executed
    in that order. ``forwarding``: packet switches carry what has no path of its own on the rails. ``values`` gives the
    values that a communication begins with (None: only sizes matter); ``layout`` their size and place where a user's
    script drives the rank (None: those of the program). ``facts`` may be shared by the ranks of a program.
    """

    def __init__(
        self,
        program: Program,
        rank: int,
        scale: Scale,
        *,
        ports_per_gpu: int,
        forwarding: bool,
        values: Callable[[InFlight], Floats] | None = None,
        layout: Callable[[InFlight], Layout] | None = None,
        facts: ScheduleFacts | None = None,
    ) -> None:
        self.program = program
        self.rank = rank
        self.scale = scale
        self.paths = Paths(ports_per_gpu, forwarding=forwarding)
        self._values, self._layout = values, layout
        self._facts = facts or ScheduleFacts()
        self._plans = ExchangePlans(rank, self._facts)
        self._names = flow_names(program, rank)
        self._out: list[Action] = []
        self.sending: dict[FlowKey, InFlight] = {}
        self.receiving: dict[FlowKey, InFlight] = {}
        """The communications that receive now."""
        self.unexpected: dict[FlowKey, dict[int, UnexpectedPart]] = {}
        """Parts that came before their receive, by transfer."""
        self._credits = Credits()
        self._rolls: dict[Flow, RollCall] = {}
        """Those that this rank calls."""
        self.client_groups: set[str] = set()
        """The groups of single circuits that collectives request while they run."""
        self.rotating: set[str] = set()
        """All groups whose circuits come in slots, whether one of their slots is up or not."""
        self._next_index: dict[str, int] = {}
        """Number of requests of each of ``client_groups`` so far."""
        self._circuit_waits: dict[tuple[str, int], InFlight] = {}
        self._waits: dict[int | tuple[str, int], tuple[Blocked, float]] = {}
        """Waits for acknowledgements with their begin: by operation for the circuits of a phase, otherwise by (group,
        index of the request)."""
        self.slots: dict[str, SlotSender[SlotMessage]] = {}
        """The slot senders by group, while its circuits come in slots."""

    def _drain(self) -> list[Action]:
        out, self._out = self._out, []
        return out

    def _note(self, kind: str, t: float, end: float | None, fields: dict[str, Any]) -> None:
        self._out.append(Event(t, "agent", kind, end, {"rank": self.rank, **fields}))

    @property
    def under_way(self) -> list[InFlight]:
        """The communications in flight (a collective twice: as one that sends and as one that receives)."""
        return [*self.sending.values(), *self.receiving.values()]

    @property
    def waits(self) -> bool:
        """Whether a communication is in flight, or an acknowledgement of the controller awaited."""
        return bool(self.sending or self.receiving or self._waits)

    # -- starting and ending -----------------------------------------------------------------------

    def start(self, step: int, op: Communication, phase: int, now: float) -> list[Action]:
        self._start(step, op, phase, now, since=now)
        return self._drain()

    def prepare(self) -> None:
        """Plan the collectives of a step before it begins; 30 rounds take 0.2 ms, which would delay their start."""
        if not self.client_groups and self._layout is None:
            self._plans.prepare(self.program, self.scale, self.rotating)

    def _start(self, step: int, op: Communication, phase: int, now: float, *, since: float) -> None:
        in_flight = self._load(step, op, phase, now)
        in_flight.since = since
        key = in_flight.key
        if not isinstance(op, Recv):
            self.sending[key] = in_flight
        if not isinstance(op, Send):
            self.receiving[key] = in_flight
        if in_flight.circuit_client is not None:
            self._ask(in_flight, in_flight.circuit_client.begin(), now)
        self._advance(in_flight, in_flight.exchange.begin(), since)
        for transfer, part in self.unexpected.pop(key, {}).items() if not isinstance(op, Send) else ():
            in_flight.first_byte = part.began
            if part.values is not None:
                in_flight.staged[transfer] = part.values
            if part.ended is not None:
                in_flight.last_byte = part.ended
                self._take(in_flight, transfer, part.began, part.ended, now)
        if in_flight.first_phase is not None:
            self._tell(Tell(in_flight.flow, max(in_flight.group.members), "ready"), now)

    def _load(self, step: int, op: Communication, phase: int, now: float) -> InFlight:
        elements = elements_of(self.scale.emulated_bytes(op.bytes))
        flow = self._names[op.id].at(step)
        group = self.program.groups[op.group]
        in_flight = InFlight(step, op, phase, group, flow, elements, now, last_progress=now)
        if isinstance(op, Collective):
            in_flight.schedule = schedule_of(self.program, op)
        if self._layout is not None:
            in_flight.layout = self._layout(in_flight)
            in_flight.elements = elements = in_flight.layout.words
        if in_flight.schedule is not None:
            self._plan(in_flight, in_flight.schedule)
        elif isinstance(op, Send):
            in_flight.exchange = send_exchange(op.peer, elements, self.program.stripes)
        elif isinstance(op, Recv):
            stripes = self.program.stripes
            in_flight.exchange = recv_exchange(op.peer, elements, stripes, announced=not self.program.eager)
        in_flight.unsent = len(in_flight.exchange.outgoing)
        in_flight.unposted.update(part.path for part in in_flight.exchange.outgoing)
        if self._values is not None:
            in_flight.buffer = self._values(in_flight)
        return in_flight

    def _plan(self, in_flight: InFlight, schedule: Schedule) -> None:
        """Set the exchange of a collective, and its circuit client and slot sender if it needs circuits."""
        group = in_flight.group
        if schedule.pieces:
            in_flight.first_phase = FirstPhase(late=group.members.index(self.rank))
            return
        mine = self._facts.transfers(schedule, group.members.index(self.rank))
        if group.domain == "scale-out":
            in_flight.slot_sender = self.slots.get(group.name)
            if self.client_groups and schedule.transfers:
                uses = self._facts.uses(schedule)
                in_flight.circuit_client = circuit_client_of(
                    group, uses, self.rank, self.client_groups, self._next_index, in_turn=schedule.provisioned
                )
        transfers = in_flight.circuit_client.circuits if in_flight.circuit_client is not None else None
        circuits = on_circuits(mine, transfers, in_slots=in_flight.slot_sender is not None)
        elements = in_flight.elements if in_flight.layout is None else in_flight.layout.bounds
        in_flight.exchange = self._plans.exchange(schedule, group, elements, frozenset(circuits))

    def _check_moved(self, in_flight: InFlight) -> None:
        first = in_flight.first_phase
        if first is not None and first.after is not None and first.over(in_flight.exchange, in_flight.unsent):
            in_flight.first_phase = None
            self._advance(in_flight, in_flight.go_on(first.after))
        if not in_flight.draining and in_flight.moved:
            in_flight.draining = True
            self._out.append(Drain(in_flight))

    def close(self, in_flight: InFlight) -> None:
        for table in (self.sending, self.receiving):
            if table.get(in_flight.key) is in_flight:
                del table[in_flight.key]
        if not isinstance(in_flight.op, Recv):
            self._credits.forget(in_flight.key)

    # -- sending -----------------------------------------------------------------------------------

    def _advance(self, in_flight: InFlight, steps: Iterable[Step], since: float | None = None) -> None:
        """Take ``steps``, which became possible at ``since`` (None: not known)."""
        for action, part in steps:
            if action == "send":
                self._offer(in_flight, in_flight.read(part), since)
            elif action == "apply":
                in_flight.apply(part)
            elif action == "keep":
                in_flight.keep(part)
            elif action == "pause":
                assert in_flight.schedule is not None
                self._out.append(RoundPause(in_flight, part, self.scale.emulated_s(in_flight.schedule.pause_s), since))
            else:
                self._announce(in_flight, part, since or 0.0)
        if in_flight.slot_sender is not None:
            in_flight.slot_sender.report()
        self._check_moved(in_flight)

    def _offer(self, in_flight: InFlight, part: MessagePart, since: float | None) -> None:
        """Send ``part`` now, or when its circuit is up, its slot begins or the receiver's credit comes."""
        if in_flight.slot_sender is not None and not part.scale_up:
            in_flight.slot_sender.offer(part.peer, SlotMessage(in_flight, part))
            self._send_in_slot(in_flight.slot_sender)
        elif in_flight.circuit_client is not None and in_flight.on_circuit(part):
            if in_flight.circuit_client.is_up(part.transfer):
                self._send(in_flight, part, since=since)
            else:
                in_flight.awaiting_circuit.append(part)
        else:
            path = self.path(in_flight, part, incoming=False)
            eager = self.program.eager and isinstance(in_flight.op, Send)
            last_round, taken = self._credits.of(in_flight.key, path)
            if eager or last_round >= part.round:
                self._send(in_flight, part, path, None if since is None else max(since, taken))
            else:
                in_flight.awaiting_credit.setdefault(path, []).append((part, since))
                self._out.append(OpenPath(path))  # the credit comes by it, which may be for this rank to open

    def _send(
        self, in_flight: InFlight, part: MessagePart, path: PeerKey | None = None, since: float | None = None
    ) -> None:
        in_flight.payload_bytes += part.bytes
        in_flight.unposted[part.path] -= 1
        last = not in_flight.unposted[part.path]
        # The end of one operation may have to wait for bytes of another that uses the same path.
        acknowledged = last or len(self.sending) > 1 or in_flight.in_slots(part) or in_flight.on_circuit(part)
        acknowledged |= in_flight.first_phase is not None  # which part is the last is not known yet
        path = path or self.path(in_flight, part, incoming=False)
        self._out.append(SendPart(in_flight, part, path, acknowledged, since))

    def _send_in_slot(self, slot_sender: SlotSender[SlotMessage]) -> None:
        for in_flight, part in slot_sender.free():
            self._send(in_flight, part)

    def _announce(self, in_flight: InFlight, part: MessagePart, not_before: float = 0.0) -> None:
        self._out.append(Announce(in_flight, self.path(in_flight, part, incoming=True), part.round, not_before))

    def credit(
        self, key: FlowKey, path: PeerKey, last_round: int, now: float, since: float | None = None
    ) -> list[Action]:
        """Process a receiver credit: the receiver of flow ``key`` takes all rounds up to ``last_round`` by ``path``.

        ``since``: the time from which on it does, at most ``now`` (None: now).
        """
        since = now if since is None else min(now, since)
        self._credits.take(key, path, last_round, since)
        in_flight = self.sending.get(key)
        waiting = in_flight.awaiting_credit.pop(path, None) if in_flight is not None else None
        if in_flight is None or not waiting:
            return self._drain()
        in_flight.last_progress = now
        for part, possible in waiting:
            if part.round <= self._credits.of(key, path)[0]:
                self._send(in_flight, part, path, since if possible is None else max(since, possible))
            else:
                in_flight.awaiting_credit.setdefault(path, []).append((part, possible))
        return self._drain()

    def taken(self, in_flight: InFlight, now: float) -> list[Action]:
        """Process that one outgoing part was taken from this rank: its caller needs it no more."""
        in_flight.unsent -= 1
        in_flight.last_progress = now
        self._check_moved(in_flight)
        return self._drain()

    def left(self, in_flight: InFlight, part: MessagePart) -> list[Action]:
        """Process that all bytes of ``part`` have left the port, which is free for the next receiver."""
        if part.transfer in in_flight.exchange.awaits_sent:  # not one of a first phase that is over
            self._left(in_flight, part)
        return self._drain()

    def _left(self, in_flight: InFlight, part: MessagePart) -> None:
        if in_flight.first_phase is None or in_flight.first_phase.goes_on(part):
            self._advance(in_flight, in_flight.exchange.sent(part.transfer))

    def paused(self, pause: RoundPause, due: float) -> list[Action]:
        """Begin the round of ``pause``, which ended at ``due``."""
        self._advance(pause.in_flight, pause.in_flight.exchange.paused(pause.part.transfer), due)
        return self._drain()

    def delivered(self, in_flight: InFlight, part: MessagePart, now: float) -> list[Action]:
        """Process that the receiver has acknowledged ``part``, which takes a circuit or a slot."""
        if in_flight.slot_sender is not None and not part.scale_up:
            in_flight.slot_sender.acknowledged()
        self._end_use(in_flight, part, now)
        self._check_moved(in_flight)
        return self._drain()

    # -- eager collectives ---------------------------------------------------------------------------

    def _tell(self, tell: Tell, now: float) -> None:
        if tell.rank == self.rank:
            self._hear(tell.flow, self.rank, tell.word, tell.number, now)
        else:
            self._out.append(tell)

    def told(self, flow: Flow, rank: int, word: Word, number: int, now: float) -> list[Action]:
        """Process what ``rank`` tells of the eager collective ``flow``; ``VerifyError`` if it does not run here."""
        self._hear(flow, rank, word, number, now)
        return self._drain()

    def _hear(self, flow: Flow, rank: int, word: Word, number: int, now: float) -> None:
        if word in ("ready", "begun"):
            members = [*self.program.groups.values()][flow.group].members
            answers = self._rolls.setdefault(flow, RollCall(flow, members)).take(rank, word, number)
            if word == "begun" and answers:
                del self._rolls[flow]
                self._note("roll_call", now, None, {"step": flow.step, "begun": answers[0].number})
            for tell in answers:
                self._tell(tell, now)
            return
        in_flight = self.sending.get((flow, -1))
        if in_flight is None or in_flight.first_phase is None:
            raise VerifyError(f"rank {self.rank} was told {word!r} of {flow} by rank {rank}, which it has not begun")
        in_flight.last_progress = now
        first = in_flight.first_phase
        if word == "late":
            self._begin_first_phase(in_flight, number, now)
        elif word == "stop":
            first.most = first.begun
            self._tell(Tell(flow, rank, "begun", first.begun), now)
        else:
            self._end_first_phase(in_flight, first, number)

    def _begin_first_phase(self, in_flight: InFlight, late: int, now: float) -> None:
        assert in_flight.schedule is not None
        schedule = eager_pieces(in_flight.schedule.n, late, in_flight.schedule.pieces)
        rounds = schedule.first_phase // schedule.pieces
        in_flight.first_phase = FirstPhase(late, rounds, schedule.pieces, begun=1)
        exchange = self._plans.exchange(schedule, in_flight.group, in_flight.elements, frozenset())
        self._advance(in_flight, in_flight.go_on(exchange), now)

    def _end_first_phase(self, in_flight: InFlight, first: FirstPhase, done: int) -> None:
        """Begin the pieces that others have begun, but no more; what follows from them comes when they are over."""
        assert in_flight.schedule is not None
        pieces, members = in_flight.schedule.pieces, in_flight.group.members
        whole, me = eager_whole(len(members), first.late, pieces, done), members.index(self.rank)
        before = (pieces - 1) * whole.first_phase
        """Rounds of all pieces but one: rounds and transfers are numbered as if all pieces had been done."""
        mine = [
            (before * (len(members) - 1) + number, replace(t, round=before + t.round))
            for number, t in enumerate(whole.transfers)
            if me in (t.src, t.dst) and t.round >= whole.first_phase
        ]
        first.after, first.most = collective_exchange(whole, members, self.rank, in_flight.elements, mine), done
        in_flight.unsent -= (pieces - done) * first.rounds
        held, first.held = first.held, []
        for part in held:
            self._left(in_flight, part)
        self._check_moved(in_flight)

    # -- receiving ---------------------------------------------------------------------------------

    def began(self, in_flight: InFlight, part: MessagePart, path: PeerKey, now: float, due: float) -> list[Action]:
        """Process the first byte of an incoming ``part``, the last of which comes at ``due`` at the earliest."""
        in_flight.paths.add(path)
        if in_flight.first_byte is None:
            in_flight.first_byte = now
        for _, following in in_flight.exchange.began(part.transfer):
            self._announce(in_flight, following, due)
        return self._drain()

    def arrived(
        self, key: FlowKey, transfer: int, began: float, now: float, since: float | None = None
    ) -> list[Action]:
        """Process a part of flow ``key``; its first byte came at ``began``, its last ``since`` (None: not known)."""
        in_flight = self.receiving.get(key)
        if in_flight is None:
            self.unexpected.setdefault(key, {}).setdefault(transfer, UnexpectedPart(began)).ended = now
        else:
            in_flight.last_progress = now
            self._take(in_flight, transfer, began, now, now, since)
        return self._drain()

    def _take(
        self, in_flight: InFlight, transfer: int, began: float, ended: float, now: float, since: float | None = None
    ) -> None:
        part = in_flight.exchange.incoming[transfer]
        if transfer in in_flight.staged:
            part = in_flight.sized(part, in_flight.staged[transfer].nbytes)
        self._note("transfer", began, ended, in_flight.transfer_fields(part))
        steps = in_flight.exchange.arrived(transfer)
        self._end_use(in_flight, part, now)
        self._advance(in_flight, steps, since)

    # -- circuits of collectives -------------------------------------------------------------------

    def _ask(self, in_flight: InFlight, messages: Iterable[RequestCircuits | ReleaseCircuits], now: float) -> None:
        """Send messages to the controller, and remember the requests until they are acknowledged."""
        for message in messages:
            group, index = message.group, message.index
            if isinstance(message, RequestCircuits):
                self._circuit_waits[group, index] = in_flight
                blocked = Blocked(in_flight.step, in_flight.op, group, index, in_flight.phase)
                self._waits[group, index] = blocked, now
            self._out.append(message)

    def _circuit_up(self, group: str, index: int, now: float) -> None:
        """Start the transfers of a circuit of a collective that the controller has acknowledged."""
        in_flight = self._circuit_waits.pop((group, index), None)
        if in_flight is None:
            raise ControlError(f"the controller acknowledged request {index} of group {group}, which is not open")
        assert in_flight.circuit_client is not None
        self._end_wait((group, index), now)
        transfers = in_flight.circuit_client.acknowledged(group, index)
        self._ask(in_flight, in_flight.circuit_client.release(transfers[0]), now)
        in_flight.last_progress = now
        incoming = next((p for p in in_flight.exchange.incoming.values() if p.transfer in transfers), None)
        if incoming is not None:
            self._out.append(OpenPath(self.path(in_flight, incoming, incoming=True)))
        waiting, in_flight.awaiting_circuit = in_flight.awaiting_circuit, []
        for part in waiting:
            if part.transfer in transfers:
                self._send(in_flight, part, since=now)
            else:
                in_flight.awaiting_circuit.append(part)
        self._check_moved(in_flight)

    def _end_use(self, in_flight: InFlight, part: MessagePart, now: float) -> None:
        """Tell the circuit client that nothing of ``part`` is in flight, so that its circuit can be released."""
        if in_flight.circuit_client is not None and in_flight.on_circuit(part):
            self._ask(in_flight, in_flight.circuit_client.over(part.transfer), now)

    # -- waits -------------------------------------------------------------------------------------

    def _end_wait(self, key: int | tuple[str, int], now: float) -> None:
        wait = self._waits.pop(key, None)
        if wait is not None:
            self._note_wait(*wait, now)

    def _note_wait(self, blocked: Blocked, since: float, now: float) -> None:
        step, op, phase = blocked.step, blocked.op.id, blocked.phase
        fields = {"step": step, "op": op, "group": blocked.group, "index": blocked.index, "phase": phase}
        self._note("wait", since, max(now, since), fields)

    def note_waits(self, now: float) -> list[Action]:
        for blocked, since in self._waits.values():
            self._note_wait(blocked, since, now)
        return self._drain()

    def check_waits(self, now: float, timeout_s: float) -> None:
        """Raise ``ControlError`` when an acknowledgement is missing for longer than ``timeout_s``."""
        for key, (blocked, since) in self._waits.items():
            if now - since > timeout_s:
                kind = "group" if isinstance(key, int) else "circuit"
                raise ControlError(
                    f"rank {self.rank} got no acknowledgement of request {blocked.index} of {kind} {blocked.group} "
                    f"within {timeout_s:g} s, and does not send without one"
                )

    # -- paths -------------------------------------------------------------------------------------

    def path(self, in_flight: InFlight, part: MessagePart, *, incoming: bool) -> PeerKey:
        """The path of a part; both ends compute it from the sender's side.

        Where circuits come in slots, only the sender knows the path, and only once the slot has begun. Raises
        ``ControlError`` where the group has no path between the two ranks.
        """
        if part.scale_up:
            return "scale-up", 0, part.peer, 0
        if in_flight.circuit_client is not None and in_flight.on_circuit(part):
            own, far = in_flight.circuit_client.lanes(part.transfer)
            return "scale-out", own, part.peer, far
        if in_flight.slot_sender is not None:
            lanes = in_flight.slot_sender.lanes(part.peer)
            return "scale-out", lanes.out, part.peer, lanes.into
        place = self.paths.place(in_flight.group, self.rank, part.peer, part.lane, incoming=incoming)
        if place is None:
            source, target = (part.peer, self.rank) if incoming else (self.rank, part.peer)
            raise ControlError(
                f"group {in_flight.group.name} has no circuit between rank {source} and rank {target}, which "
                f"{in_flight.op.name} needs; the policy sets up none"
            )
        return in_flight.group.domain, place[0], part.peer, place[1]
