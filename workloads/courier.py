"""Carries out communications: which bytes go over which connection now, and when is one done.

A receiver that has reached an operation says so with a small ``ready`` message on every path it will receive on; the
sender's data waits for it. So data never meets a rank that has not posted its operation (as with NCCL), what arrives
can always be read at once, and what was not announced is an error. An operation is done when everything has arrived,
everything is written and the peers' kernels have acknowledged all of it: nothing of it is in flight any more.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from railyard.errors import ControlError, VerifyError
from workloads import payload
from workloads.agent_config import AgentConfig
from workloads.collectives.catalog import schedule_of
from workloads.connection import Connection, Outgoing, PeerKey, PeerLost
from workloads.exchange import (
    Exchange,
    Part,
    Progress,
    collective_exchange,
    elements_of,
    recv_exchange,
    send_exchange,
)
from workloads.flows import flow_names
from workloads.message import Flow, Header
from workloads.paths import Path, choose_path
from workloads.program import Collective, Communication, Group, Recv, Send
from workloads.schedule import Schedule
from workloads.transport import Transport

_LEAST_POLL_S = 0.0002
_NOTHING = memoryview(b"")
_FlowKey = tuple[Flow, int]
"""A flow, and the peer for point to point (-1 for a collective)."""


@dataclass
class Carriage:
    """One communication under way on this rank. ``first_byte`` is when data began to move."""

    step: int
    op: Communication
    phase: int
    group: Group
    flow: Flow
    exchange: Exchange
    elements: int
    posted: float
    schedule: Schedule | None = None
    buffer: payload.Floats | None = None
    staged: dict[int, payload.Floats] = field(default_factory=dict)
    unsent: int = 0
    sent_bytes: int = 0
    first_byte: float | None = None
    last_progress: float = 0.0
    connections: dict[PeerKey, Connection] = field(default_factory=dict)
    opened: set[PeerKey] = field(default_factory=set)
    """Paths on which data of this communication has been sent."""
    lanes: set[int] = field(default_factory=set)
    draining: bool = False
    wrong: int | None = None

    @property
    def moved(self) -> bool:
        """Everything has arrived and everything is in the kernel's hands."""
        return self.exchange.received_all and self.unsent == 0

    @property
    def key(self) -> _FlowKey:
        """Under which messages find this communication."""
        return self.flow, -1 if isinstance(self.op, Collective) else self.op.peer


class Courier:
    """All communications of one rank; ``done`` is called with each one that is done."""

    def __init__(self, config: AgentConfig, done: Callable[[Carriage, float], None]) -> None:
        self._config = config
        self._rank = config.rank
        self._done = done
        self.transport = Transport(config.plan, config.rank, self)
        self.paths: dict[str, tuple[Path, ...]] = {}
        self._names = flow_names(config.program, config.rank)
        self._sending: dict[_FlowKey, Carriage] = {}
        self._receiving: dict[_FlowKey, Carriage] = {}
        self._ready: set[tuple[PeerKey, _FlowKey]] = set()
        self._held: dict[tuple[PeerKey, _FlowKey], list[tuple[Carriage, Part, memoryview]]] = {}
        self._unopened: dict[PeerKey, list[Outgoing]] = {}
        """Messages for paths that the peer has yet to open."""
        self._polls: list[tuple[float, int, Carriage]] = []
        self._tie = itertools.count()
        self._blank = _NOTHING
        self._now = 0.0

    # -- starting ----------------------------------------------------------------------------------

    def start(self, step: int, op: Communication, phase: int, now: float) -> None:
        """Carry out ``op``; its circuits stand."""
        self._now = now
        carriage = self._make(step, op, phase, now)
        key = carriage.key
        if not isinstance(op, Recv):
            self._sending[key] = carriage
        if not isinstance(op, Send):
            self._receiving[key] = carriage
            self._announce(carriage)
        self._carry_on(carriage, carriage.exchange.begin())

    def _make(self, step: int, op: Communication, phase: int, now: float) -> Carriage:
        config = self._config
        group = config.program.groups[op.group]
        flow = self._names[op.id].at(step)
        elements = elements_of(config.scale.emulated_bytes(op.bytes))
        plan: Schedule | None = None
        if isinstance(op, Collective):
            plan = schedule_of(config.program, op)
            exchange = collective_exchange(plan, group.members, self._rank, elements)
        elif isinstance(op, Send):
            exchange = send_exchange(op.peer, elements)
        else:
            exchange = recv_exchange(op.peer, elements)
        carriage = Carriage(step, op, phase, group, flow, exchange, elements, now, plan)
        carriage.unsent = len(exchange.outgoing)
        carriage.last_progress = now
        if config.verify:
            carriage.buffer = self._contribution(carriage)
        return carriage

    def _contribution(self, carriage: Carriage) -> payload.Floats:
        seed, flow, op = self._config.seed, carriage.flow, carriage.op
        if carriage.schedule is not None:
            members = carriage.group.members
            return payload.initial(seed, flow, carriage.schedule, members, self._rank, carriage.elements)
        if isinstance(op, Send):
            return payload.total(seed, flow, [self._rank], 0, carriage.elements)
        return np.full(carriage.elements, -1, dtype=np.float32)

    def _announce(self, carriage: Carriage) -> None:
        """Tell every path that will bring something that this rank is ready for it."""
        keys = dict.fromkeys(self._key(carriage, part, incoming=True) for part in carriage.exchange.incoming.values())
        for key in keys:
            self._send(carriage, key, Outgoing(Header("ready", carriage.flow).pack(), _NOTHING))

    def _key(self, carriage: Carriage, part: Part, *, incoming: bool) -> PeerKey:
        """The connection of a part; both ends compute it from the sender's side."""
        group = carriage.group
        source, target = (part.peer, self._rank) if incoming else (self._rank, part.peer)
        forwarded = group.domain == "scale-out" and self._config.mode in ("native", "electrical")
        paths, ports = self.paths.get(group.name, ()), self._config.plan.ports_per_gpu
        path = choose_path(paths, source, target, part.lane, forwarded=forwarded, ports_per_gpu=ports)
        if path is None:
            raise ControlError(
                f"group {group.name} has no circuit between rank {source} and rank {target}, which "
                f"{carriage.op.name} needs; the policy must light one"
            )
        lane, peer_lane = (path[3], path[1]) if incoming else (path[1], path[3])
        return group.domain, lane, part.peer, peer_lane

    # -- sending -----------------------------------------------------------------------------------

    def _carry_on(self, carriage: Carriage, progress: Progress) -> None:
        for is_send, part in progress.steps:
            if is_send:
                self._offer(carriage, part)
            elif carriage.buffer is not None:
                self._apply(carriage.buffer, part, carriage.staged.pop(part.transfer))
        self._check_moved(carriage)

    @staticmethod
    def _apply(buffer: payload.Floats, part: Part, values: payload.Floats) -> None:
        if part.reduce:
            buffer[part.start : part.end] += values
        else:
            buffer[part.start : part.end] = values

    def _offer(self, carriage: Carriage, part: Part) -> None:
        """Send ``part``, now or when the receiver has said that it is ready."""
        key = self._key(carriage, part, incoming=False)
        if carriage.buffer is None:
            content = self._blank_bytes(part.bytes)
        else:
            content = memoryview(carriage.buffer[part.start : part.end].tobytes())
        if (key, carriage.key) in self._ready:
            self._post(carriage, key, part, content)
        else:
            self._held.setdefault((key, carriage.key), []).append((carriage, part, content))
            self._open(key)  # the receiver cannot say so over a path that it is for this rank to open

    def _open(self, key: PeerKey) -> Connection | None:
        """The connection of ``key``; None where the peer has yet to open it."""
        domain, lane, peer, peer_lane = key
        return self.transport.connection(domain, (self._rank, lane, peer, peer_lane), self._now)

    def _blank_bytes(self, count: int) -> memoryview:
        """``count`` bytes of no meaning, from one buffer."""
        if len(self._blank) < count:
            self._blank = memoryview(bytes(count))
        return self._blank[:count]

    def _post(self, carriage: Carriage, key: PeerKey, part: Part, content: memoryview) -> None:
        if carriage.first_byte is None:
            carriage.first_byte = self._now
        header = Header("data", carriage.flow, part.transfer, part.bytes).pack()
        carriage.sent_bytes += len(header) + part.bytes
        fresh = key not in carriage.opened
        carriage.opened.add(key)
        self._send(carriage, key, Outgoing(header, content, token=carriage, fresh=fresh))

    def _send(self, carriage: Carriage, key: PeerKey, message: Outgoing) -> None:
        carriage.lanes.add(key[1])
        connection = self._open(key)
        if connection is None:
            self._unopened.setdefault(key, []).append(message)
            return
        carriage.connections[key] = connection
        connection.send(message)

    def accepted(self, connection: Connection, now: float) -> None:
        """A peer opened a path: what waited for it goes."""
        for message in self._unopened.pop(connection.key, []):
            connection.send(message)

    # -- what connections report (Inbox) -------------------------------------------------------------

    def expect(self, connection: Connection, header: Header) -> memoryview | None:
        """Where the payload goes; ``VerifyError`` if this rank does not await it from there."""
        if header.kind == "ready":
            return None
        carriage = self._receiving.get(self._flow_key(connection, header))
        part = carriage.exchange.incoming.get(header.transfer) if carriage else None
        if carriage is None or part is None:
            raise VerifyError(f"misdelivered: {self._describe(connection, header)}, which it does not await")
        if part.bytes != header.length or self._key(carriage, part, incoming=True) != connection.key:
            raise VerifyError(
                f"misdelivered: {self._describe(connection, header)}, where {part.bytes} bytes from rank {part.peer} "
                "are due on another path or in another length"
            )
        carriage.connections[connection.key] = connection
        if carriage.first_byte is None:
            carriage.first_byte = self._now
        if carriage.buffer is None:
            return None
        values = carriage.staged[part.transfer] = np.empty(part.end - part.start, dtype=np.float32)
        return values.data.cast("B") if len(values) else None

    def _describe(self, connection: Connection, header: Header) -> str:
        flow = header.flow
        group = list(self._config.program.groups)[flow.group] if flow.group < len(self._config.program.groups) else "?"
        return (
            f"rank {self._rank} got transfer {header.transfer} ({header.length} bytes) of group {group}, "
            f"operation {flow.sequence}, step {flow.step} from rank {connection.peer}"
        )

    @staticmethod
    def _flow_key(connection: Connection, header: Header) -> _FlowKey:
        return header.flow, connection.peer if header.flow.point_to_point else -1

    def arrived(self, connection: Connection, header: Header) -> None:
        """A message is complete."""
        flow_key = self._flow_key(connection, header)
        if header.kind == "data":
            carriage = self._receiving[flow_key]
            carriage.last_progress = self._now
            self._carry_on(carriage, carriage.exchange.arrived(header.transfer))
            return
        self._ready.add((connection.key, flow_key))
        for carriage, part, content in self._held.pop((connection.key, flow_key), []):
            carriage.last_progress = self._now
            self._post(carriage, connection.key, part, content)

    def written(self, connection: Connection, token: object) -> None:
        """A message is in the kernel's hands."""
        assert isinstance(token, Carriage)
        token.connections[connection.key] = connection
        token.unsent -= 1
        token.last_progress = self._now
        self._check_moved(token)

    # -- ending ------------------------------------------------------------------------------------

    def _check_moved(self, carriage: Carriage) -> None:
        if carriage.moved and not carriage.draining:
            carriage.draining = True
            heapq.heappush(self._polls, (self._now, next(self._tie), carriage))

    def tick(self, now: float) -> None:
        """Send what was queued or held back for the token bucket, and finish what is acknowledged."""
        self._now = now
        for connection in list(self.transport):
            if connection.has_something_to_send(now):
                connection.flush(now)
        while self._polls and self._polls[0][0] <= now:
            _, _, carriage = heapq.heappop(self._polls)
            self._poll(carriage, now)

    def _poll(self, carriage: Carriage, now: float) -> None:
        left = max((c.drain_s() for key, c in carriage.connections.items() if key in carriage.opened), default=0.0)
        if left > 0:
            heapq.heappush(self._polls, (now + max(left, _LEAST_POLL_S), next(self._tie), carriage))
            return
        self._forget(carriage)
        if carriage.buffer is not None:
            carriage.wrong = self._wrong_elements(carriage, carriage.buffer)
        self._done(carriage, now)

    def _forget(self, carriage: Carriage) -> None:
        for table in (self._sending, self._receiving):
            if table.get(carriage.key) is carriage:
                del table[carriage.key]
        if not isinstance(carriage.op, Collective | Send):
            return
        self._ready -= {entry for entry in self._ready if entry[1] == carriage.key}

    def _wrong_elements(self, carriage: Carriage, buffer: payload.Floats) -> int | None:
        seed, flow, op = self._config.seed, carriage.flow, carriage.op
        if carriage.schedule is not None:
            return payload.wrong_elements(buffer, seed, flow, carriage.schedule, carriage.group.members, self._rank)
        if isinstance(op, Send):
            return None
        assert not isinstance(op, Collective)
        return int(np.count_nonzero(buffer != payload.total(seed, flow, [op.peer], 0, carriage.elements)))

    # -- the loop's view -----------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When ``tick`` has something to do (infinity if nothing is planned)."""
        times = [held for c in self.transport if (held := c.held_until()) is not None]
        if self._polls:
            times.append(self._polls[0][0])
        return min(times, default=float("inf"))

    def handle(self, readable: list[Connection], writable: list[Connection], now: float) -> None:
        """Move what ``select`` says can move."""
        self._now = now
        for connection in writable:
            if not connection.connected:
                connection.check_connected()
            connection.flush(now)
        for connection in readable:
            if connection.connected:
                connection.receive(now)

    def check_progress(self, now: float) -> None:
        """``PeerLost`` if a peer has not moved a byte for too long."""
        limit = self._config.peer_timeout_s
        for carriage in [*self._sending.values(), *self._receiving.values()]:
            latest = max((c.last_progress for c in carriage.connections.values()), default=0.0)
            if now - max(latest, carriage.last_progress) > limit:
                raise PeerLost(
                    f"rank {self._rank} moved nothing for {limit:.3g} s in {carriage.op.name} (step {carriage.step}, "
                    f"group {carriage.group.name}) with {self._missing(carriage)}"
                )

    @staticmethod
    def _missing(carriage: Carriage) -> str:
        peers = sorted(
            {part.peer for part in carriage.exchange.awaited} | {c.peer for c in carriage.connections.values()}
        )
        return "rank " + ", ".join(map(str, peers)) if peers else "its peers"
