from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import ConfigError, VerifyError
from workloads.agent.transport import payload
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.collectives.verify import verify
from workloads.rank.exchange import (
    Exchange,
    MessagePart,
    Step,
    collective_exchange,
    elements_of,
    recv_exchange,
    send_exchange,
)
from workloads.rank.flows import Flow
from workloads.rank.schedule_facts import ScheduleFacts
from workloads.rank.tensors import Floats
from workloads.schedule import CollectiveKind, Schedule, Transfer

CASES = [(name, kind) for name, algorithm in ALGORITHMS.items() for kind in algorithm.kinds]
FLOW = Flow(step=3, group=1, sequence=2)


def parts(steps: list[Step], action: str) -> list[MessagePart]:
    """The parts of one kind of step."""
    return [part for kind, part in steps if kind == action]


@dataclass
class Carried:
    """A schedule carried out on numbers, messages delivered in a random order."""

    plan: Schedule
    members: list[int]
    elements: int
    rng: random.Random
    circuits: bool = False
    wire: list[tuple[int, MessagePart, Floats]] = field(default_factory=list)
    """(sender, part, values) of what was sent and has not left."""
    staged: dict[tuple[int, int], Floats] = field(default_factory=dict)
    limit: dict[tuple[int, int, int, bool], int] = field(default_factory=dict)
    """(sender, receiver, lane, network) -> the round up to which the receiver takes what comes."""
    under_way: dict[tuple[int, bool, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    """Peers that a rank sends to or receives from at this moment."""
    most_peers: int = 0
    order: list[int] = field(default_factory=list)
    """Rounds of the transfers as they arrived."""
    planned: dict[int, Exchange] | None = None
    """The exchange of each member to be copied (None: new ones are made)."""

    def run(self) -> dict[int, Floats]:
        """The buffers at the end."""
        plan, members = self.plan, self.members
        self.buffers = {m: payload.initial(1, FLOW, plan, members, m, self.elements) for m in members}
        planned = self.planned
        self.exchanges = self.exchanges_of() if planned is None else {m: planned[m].copy() for m in members}
        for member in members:
            self.act(member, self.exchanges[member].begin())
        while self.wire:
            ready = [n for n, (rank, part, _) in enumerate(self.wire) if self.may_go(rank, part)]
            assert ready, "nobody may send: the run stands still"
            self.deliver(*self.wire.pop(self.rng.choice(ready)))
        assert all(exchange.received_all for exchange in self.exchanges.values())
        assert not any(exchange.awaits_sent for exchange in self.exchanges.values())
        assert not self.staged
        return self.buffers

    def exchanges_of(self) -> dict[int, Exchange]:
        """A new exchange for each member."""
        plan, members = self.plan, self.members
        circuits = range(len(plan.transfers)) if self.circuits else ()
        return {m: collective_exchange(plan, members, m, self.elements, circuits=circuits) for m in members}

    def may_go(self, rank: int, part: MessagePart) -> bool:
        """Whether the receiver has said that it takes this."""
        return self.circuits or self.limit.get((rank, part.peer, part.lane, part.scale_up), -1) >= part.round

    def deliver(self, rank: int, part: MessagePart, values: Floats) -> None:
        """One message leaves, and arrives."""
        self.staged[part.peer, part.transfer] = values
        self.order.append(part.round)
        self.under_way[rank, part.scale_up, "to"].discard(part.peer)
        if part.transfer in self.exchanges[rank].awaits_sent:
            self.act(rank, self.exchanges[rank].sent(part.transfer))
        self.act(part.peer, self.exchanges[part.peer].arrived(part.transfer))

    def act(self, rank: int, steps: list[Step]) -> None:
        """Do what became possible."""
        buffer = self.buffers[rank]
        for action, part in steps:
            if action == "announce":
                self.limit[part.peer, rank, part.lane, part.scale_up] = part.round
            elif action == "send":
                self.wire.append((rank, part, buffer[part.start : part.end].copy()))
                to = self.under_way[rank, part.scale_up, "to"]
                to.add(part.peer)
                self.most_peers = max(self.most_peers, len(to))
            elif action == "keep":
                self.staged[rank, part.transfer] = buffer[part.start : part.end].copy()
            elif action == "pause":
                self.act(rank, self.exchanges[rank].paused(part.transfer))
            elif part.reduce:
                buffer[part.start : part.end] += self.staged.pop((rank, part.transfer))
            else:
                buffer[part.start : part.end] = self.staged.pop((rank, part.transfer))


def carry(plan: Schedule, members: list[int], elements: int, rng: random.Random) -> dict[int, Floats]:
    """The buffers after ``plan``."""
    return Carried(plan, members, elements, rng).run()


def wrong(plan: Schedule, members: list[int], elements: int, buffers: dict[int, Floats]) -> dict[int, int]:
    """Wrong elements of each member."""
    return {m: payload.wrong_elements(buffers[m], 1, FLOW, plan, members, m, elements) for m in members}


def built(kind: CollectiveKind, n: int, algorithm: str) -> Schedule:
    """The catalog's schedule for the number of positions nearest to ``n`` that it can do."""
    for size in (n, *range(n + 1, 2 * n + 3)):
        with suppress(ConfigError):
            return schedule(kind, size, algorithm)
    raise AssertionError(f"{algorithm} does no number of positions near {n}")


@pytest.mark.parametrize(("algorithm", "kind"), CASES)
@given(n=st.integers(1, 7), elements=st.integers(0, 60), seed=st.integers(0, 1 << 30))
def test_any_order_of_arrival_gives_the_right_numbers(
    algorithm: str, kind: CollectiveKind, n: int, elements: int, seed: int
) -> None:
    plan = built(kind, n, algorithm)
    members = list(range(10, 10 + 3 * plan.n, 3))
    for lockstep, circuits in ((False, False), (True, False), (False, True)):
        stepped = replace(plan, lockstep=lockstep, pause_s=seed % 2)
        carried = Carried(stepped, members, elements, random.Random(seed), circuits)
        buffers = carried.run()
        assert wrong(plan, members, elements, buffers) == dict.fromkeys(members, 0)
        if plan.one_port and not circuits:
            assert carried.most_peers <= 1, "a rank never sends to two at once"


@pytest.mark.parametrize(("algorithm", "kind"), CASES)
@pytest.mark.parametrize(("lockstep", "circuits"), [(False, False), (True, False), (False, True)])
def test_a_copy_runs_like_a_new_exchange_and_leaves_its_original_as_it_was(
    algorithm: str, kind: CollectiveKind, lockstep: bool, circuits: bool
) -> None:
    plan = replace(built(kind, 4, algorithm), lockstep=lockstep)
    members = list(range(10, 10 + 3 * plan.n, 3))
    new = Carried(plan, members, 30, random.Random(5), circuits)
    buffers = new.run()
    planned = new.exchanges_of()
    before = {member: deepcopy(vars(exchange)) for member, exchange in planned.items()}
    for _ in range(2):
        copied = Carried(plan, members, 30, random.Random(5), circuits, planned=planned)
        assert wrong(plan, members, 30, copied.run()) == dict.fromkeys(members, 0)
        assert copied.order == new.order
        assert all(np.array_equal(copied.buffers[member], buffers[member]) for member in members)
        assert {member: vars(exchange) for member, exchange in planned.items()} == before
    assert all(len(planned[m].copy()) == len(planned[m]) == len(new.exchanges[m]) for m in members)


def test_an_arrival_ahead_of_its_round_waits() -> None:
    plan = Schedule("relay", "all_reduce", 3, 1, (0,), (Transfer(0, 1, 0, 0, "reduce"), Transfer(1, 2, 0, 0, "copy")))
    exchange = collective_exchange(plan, [0, 1, 2], 0, 4)
    assert [(action, part.peer) for action, part in exchange.begin()] == [("announce", 1), ("announce", 2)]
    assert exchange.arrived(1) == []
    assert [part.transfer for part in parts(exchange.arrived(0), "apply")] == [0, 1]


def test_an_arrival_nobody_awaits_is_an_error() -> None:
    exchange = recv_exchange(1, 10)
    exchange.arrived(0)
    with pytest.raises(VerifyError, match="does not await"):
        exchange.arrived(0)


def test_point_to_point() -> None:
    (part,) = parts(send_exchange(5, 10).begin(), "send")
    assert (part.peer, part.bytes, part.lane) == (5, 40, 0)
    assert send_exchange(5, 10).received_all
    assert [elements_of(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_the_check_sees_a_wrong_chunk_and_a_missing_rank() -> None:
    plan = schedule("all_reduce", 4)
    members = [0, 1, 2, 3]
    right = payload.total(1, FLOW, members, 0, 64)
    assert payload.wrong_elements(right, 1, FLOW, plan, members, 0, 64) == 0
    rolled = np.roll(right, 8)
    assert payload.wrong_elements(rolled, 1, FLOW, plan, members, 0, 64) > 32
    missing = payload.total(1, FLOW, [0, 1, 3, 3], 0, 64)
    assert payload.wrong_elements(missing, 1, FLOW, plan, members, 0, 64) == 64
    other = payload.total(1, Flow(4, 1, 2), members, 0, 64)
    assert payload.wrong_elements(other, 1, FLOW, plan, members, 0, 64) > 32


def test_sums_of_128_ranks_are_exact() -> None:
    ranks = list(range(128))
    total = sum(payload.total(9, FLOW, [rank], 0, 300) for rank in ranks)
    assert np.array_equal(total, payload.total(9, FLOW, ranks, 0, 300))


def defined(seed: int, flow: Flow, members: list[int], start: int, end: int) -> Floats:
    """The contributions element by element, as the docstring of ``workloads.agent.transport.payload`` has them."""
    salt = seed * 13 + flow.step * 29 + flow.group * 17 + flow.sequence * 11 + int(flow.point_to_point) * 5
    sums = [sum((7 * e + salt) % 97 + ((31 * m + salt) % 89) * (1 + e % 3) for m in members) for e in range(start, end)]
    return np.array(sums, dtype=np.float32)


@given(
    st.integers(0, 99),
    st.integers(0, 999),
    st.booleans(),
    st.lists(st.integers(0, 200), min_size=1, max_size=5),
    st.integers(0, 1000),
    st.integers(0, 1500),
)
def test_numbers_are_those_of_the_definition(
    seed: int, step: int, point_to_point: bool, members: list[int], start: int, count: int
) -> None:
    flow = Flow(step, 2, 3, point_to_point)
    assert np.array_equal(
        payload.total(seed, flow, members, start, start + count), defined(seed, flow, members, start, start + count)
    )


def test_a_spare_in_a_position_brings_the_same_numbers() -> None:
    for kind, name in (("all_reduce", "bidirectional-ring"), ("all_gather", "ring"), ("all_to_all", "direct")):
        plan = schedule(kind, 4, name)  # type: ignore[arg-type]
        before, after = [0, 1, 2, 3], [0, 1, 17, 3]
        for old, new in zip(before, after, strict=True):
            assert np.array_equal(
                payload.initial(1, FLOW, plan, before, old, 1001), payload.initial(1, FLOW, plan, after, new, 1001)
            )
        ended = carry(plan, before, 1001, random.Random(3))
        assert set(wrong(plan, after, 1001, dict(zip(after, ended.values(), strict=True))).values()) == {0}


def test_a_used_buffer_is_filled_for_the_next_step() -> None:
    plan, members = schedule("all_reduce", 4, "bidirectional-ring"), [5, 6, 7, 8]
    buffer = carry(plan, members, 1001, random.Random(4))[7]
    following = Flow(FLOW.step + 1, FLOW.group, FLOW.sequence)
    assert payload.refill(buffer, 1, following, plan, members, 7, 1001)
    assert np.array_equal(buffer, payload.initial(1, following, plan, members, 7, 1001))
    gather = schedule("all_gather", 4)
    assert not payload.refill(buffer, 1, following, gather, members, 7, 1001), "its empty slots would not be"


def transfers(*rows: tuple[int, int, int, int, str, int]) -> tuple[Transfer, ...]:
    """(round, src, dst, chunk, op, to) each."""
    return tuple(Transfer(r, src, dst, chunk, op, 0, to) for r, src, dst, chunk, op, to in rows)  # type: ignore[arg-type]


def test_copies_inside_a_rank_read_what_stood_at_the_start_of_the_round() -> None:
    # Three slots of one element: 0 and 1 change places through nothing but their order, 2 is added to 0 afterwards.
    steps = transfers((0, 0, 0, 0, "copy", 1), (0, 0, 0, 1, "copy", 0), (1, 0, 0, 2, "reduce", 0))
    plan = Schedule("turn", "all_reduce", 1, 3, (0, 0, 0), steps)
    buffers = carry(plan, [0], 3, random.Random(1))
    before = payload.initial(1, FLOW, plan, [0], 0, 3)
    assert buffers[0].tolist() == [before[1] + before[2], before[0], before[2]]


def test_a_schedule_with_scratch_and_an_input_of_its_own() -> None:
    # Two ranks: copy the own input (slots 2 and 3) to the result, swap inputs into scratch (4 and 5), add them.
    rows = []
    for rank in range(2):
        for chunk in range(2):
            rows.append((0, rank, rank, 2 + chunk, "copy", chunk))
            rows.append((0, rank, 1 - rank, 2 + chunk, "copy", 4 + chunk))
            rows.append((1, rank, rank, 4 + chunk, "reduce", chunk))
    plan = Schedule("apart", "all_reduce", 2, 2, (0, 1), transfers(*rows), scratch=4, input=2)
    verify(plan)
    for elements in (1, 5, 8):
        buffers = carry(plan, [3, 7], elements, random.Random(elements))
        assert len(buffers[3]) == 3 * plan.buffer_elements(elements)
        assert wrong(plan, [3, 7], elements, buffers) == {3: 0, 7: 0}


@pytest.mark.parametrize("kind", ["reduce", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter"])
def test_the_check_sees_what_never_arrived(kind: CollectiveKind) -> None:
    plan = schedule(kind, 4, "direct")
    members = [0, 1, 2, 3]
    lost = replace(plan, transfers=plan.transfers[:-1])
    assert sum(wrong(plan, members, 64, carry(plan, members, 64, random.Random(1))).values()) == 0
    assert sum(wrong(lost, members, 64, carry(lost, members, 64, random.Random(1))).values()) > 0


def test_an_all_to_all_touches_only_what_it_moves() -> None:
    plan = schedule("all_to_all", 4, "direct")
    buffer = payload.initial(1, FLOW, plan, [0, 1, 2, 3], 2, 16)
    assert len(buffer) == 64
    assert not buffer[:32].any() and not buffer[48:].any() and buffer[32:48].all()


def test_in_one_port_a_rank_turns_to_the_next_when_the_one_before_is_done() -> None:
    plan = Schedule(
        "fan", "all_reduce", 3, 1, (0,), transfers((0, 0, 1, 0, "copy", -1), (1, 0, 2, 0, "copy", -1)), one_port=True
    )
    source = collective_exchange(plan, [0, 1, 2], 0, 4)
    assert [part.peer for part in parts(source.begin(), "send")] == [1]
    assert [part.peer for part in parts(source.sent(0), "send")] == [2]
    turned = replace(plan, transfers=transfers((0, 1, 0, 0, "reduce", -1), (1, 2, 0, 0, "reduce", -1)))
    sink = collective_exchange(turned, [0, 1, 2], 0, 4)
    assert [part.peer for part in parts(sink.begin(), "announce")] == [1]
    assert [part.peer for part in parts(sink.arrived(0), "announce")] == [2]


def test_chunks_do_not_wait_for_each_other_unless_in_lock_step() -> None:
    rows = ((0, 1, 0, 0, "copy", -1), (1, 0, 1, 1, "copy", -1))
    plan = Schedule("two", "all_reduce", 2, 2, (0, 0), transfers(*rows))
    free = collective_exchange(plan, [0, 1], 0, 4)
    assert parts(free.begin(), "send")
    stepped = collective_exchange(replace(plan, lockstep=True), [0, 1], 0, 4)
    assert not parts(stepped.begin(), "send")
    assert parts(stepped.arrived(0), "send")


def test_a_rank_pauses_before_each_of_its_rounds_when_all_before_is_done() -> None:
    rows = ((0, 1, 0, 0, "copy", -1), (1, 0, 1, 1, "copy", -1))
    plan = Schedule("two", "all_reduce", 2, 2, (0, 0), transfers(*rows), lockstep=True, pause_s=0.1)
    paused = collective_exchange(plan, [0, 1], 0, 4).copy()
    assert [action for action, _ in paused.begin()] == ["pause"]
    assert [part.peer for part in parts(paused.paused(0), "announce")] == [1]
    assert [action for action, _ in paused.arrived(0)] == ["apply", "pause"]
    assert [part.transfer for part in parts(paused.paused(1), "send")] == [1]


def test_the_scale_up_network_is_told_apart() -> None:
    rows = (Transfer(0, 1, 0, 0, "copy", scale_up=True), Transfer(0, 2, 0, 1, "copy"))
    plan = Schedule("both", "all_reduce", 3, 2, (0, 0), rows, one_port=True)
    announced = parts(collective_exchange(plan, [0, 1, 2], 0, 4).begin(), "announce")
    assert {(part.peer, part.scale_up) for part in announced} == {(1, True), (2, False)}


def test_a_rank_with_several_receivers_serves_the_one_after_it_first() -> None:
    plan = schedule("all_gather", 4, "direct")
    for me, order in ((0, [1, 2, 3]), (2, [3, 0, 1])):
        exchange = collective_exchange(plan, [0, 1, 2, 3], me, 4)
        served = []
        (part,) = parts(exchange.begin(), "send")
        while True:
            served.append(part.peer)
            if part.transfer not in exchange.awaits_sent:
                break
            (part,) = parts(exchange.sent(part.transfer), "send")
        assert served == order


def test_the_next_sender_is_told_when_every_part_of_the_one_before_has_begun() -> None:
    rows = ((0, 1, 0, 0, "copy", -1), (0, 1, 0, 1, "copy", -1), (1, 2, 0, 2, "copy", -1))
    plan = Schedule("turns", "all_reduce", 3, 3, (0,) * 3, transfers(*rows), one_port=True)
    sink = collective_exchange(plan, [0, 1, 2], 0, 9)
    assert [part.peer for part in parts(sink.begin(), "announce")] == [1]
    assert not sink.began(1)
    assert not parts(sink.arrived(1), "announce")
    assert [part.peer for part in parts(sink.began(0), "announce")] == [2]
    assert not sink.began(0), "told once"


@pytest.mark.parametrize("algorithm", ["ring", "bidirectional-ring", "stragglar"])
def test_each_position_has_its_transfers_in_order(algorithm: str) -> None:
    found, facts = schedule("all_reduce", 8, algorithm), ScheduleFacts()
    for position in range(found.n):
        mine = [(n, t) for n, t in enumerate(found.transfers) if position in (t.src, t.dst)]
        assert facts.transfers(found, position) == mine


def test_one_rank_gets_copies_of_its_own_and_everything_else_from_all() -> None:
    found, facts = schedule("all_reduce", 8, "ring"), ScheduleFacts()
    facts.prepare(found)
    one = facts.of_one([(found, 3), (found, 3)])
    for position in range(found.n):
        assert one.transfers(found, position) == facts.transfers(found, position)
    assert all(t is not found.transfers[n] for n, t in one.transfers(found, 3))
    assert all(t is found.transfers[n] for n, t in one.transfers(found, 4))
