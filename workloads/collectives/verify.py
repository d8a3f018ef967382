"""Verifies a schedule: every contribution arrives exactly once wherever the collective promises it.

The value of a slot is (its chunk, the set of positions whose contribution is in it), kept as one integer: the chunk
above ``n`` bits of positions. Adding two values that share a contribution would count it twice, so that is an error, as
are adding values of two chunks and sending a chunk that the sender does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from weakref import WeakValueDictionary

from railyard.errors import VerifyError
from workloads.schedule import Schedule, Transfer

Values = list[dict[int, int]]
"""``values[position][slot]``: chunk << n | positions; an empty slot is absent."""

_verified: WeakValueDictionary[int, Schedule] = WeakValueDictionary()
"""Schedules that were verified and still exist, by identity: programs of many sizes have the same one."""


def verify(schedule: Schedule) -> None:
    """Raise ``VerifyError`` naming position and chunk unless ``schedule`` performs its collective.

    Verified are the promise of its kind (``Schedule``), ``one_port`` (in each round a position sends to at most one
    other and receives from at most one other; chunks for the same peer are one message; the scale-up network counts
    separately and copies inside a position do not count) and that the first ``first_phase`` rounds do not use the
    ``straggler``. A chunk of weight 0 is empty, so nothing is promised for it.
    """
    if _verified.get(id(schedule)) is schedule:
        return
    _check_shape(schedule)
    _check_weights(schedule)
    _check_transfers(schedule)
    _check_straggler(schedule)
    values = _start(schedule)
    for _, in_round in groupby(sorted(schedule.transfers, key=attrgetter("round")), key=attrgetter("round")):
        now = list(in_round)
        if schedule.one_port:
            _check_ports(schedule, now)
        _run_round(schedule, values, now)
    _check_end(schedule, values)
    _verified[id(schedule)] = schedule


def _check_shape(schedule: Schedule) -> None:
    n, chunks, title = schedule.n, schedule.chunks, schedule.title
    if n < 1 or chunks < 1:
        raise VerifyError(f"{title}: needs at least 1 position and 1 chunk")
    if len(schedule.owner) != chunks or not all(0 <= p < n for p in schedule.owner):
        raise VerifyError(f"{title}: owner must name one position below {n} for each chunk")
    if not 0 <= schedule.root < n:
        raise VerifyError(f"{title}: root {schedule.root} must be a position below {n}")
    if schedule.scratch < 0 or not 0 <= schedule.input <= schedule.scratch:
        raise VerifyError(
            f"{title}: {chunks} input chunks from slot {schedule.input} on must lie within its {schedule.slots} slots"
        )
    if schedule.kind != "all_to_all":
        return
    if chunks % (n * n):
        raise VerifyError(f"{title}: needs a multiple of {n} x {n} chunks, not {chunks}")
    for chunk, owner in enumerate(schedule.owner):
        if owner != chunk * n // chunks:
            raise VerifyError(
                f"{title}: chunk {chunk} starts at position {chunk * n // chunks}, not at its owner {owner}"
            )


def _check_weights(schedule: Schedule) -> None:
    """Check that there is a weight for each chunk, if there are any, and that each chunk fits wherever it goes."""
    weights, title = schedule.weights, schedule.title
    if not weights:
        return
    if schedule.moves:
        raise VerifyError(f"{title}: only a schedule whose chunks keep their slots can have weights")
    if len(weights) != schedule.chunks or min(weights) < 0 or not any(weights):
        raise VerifyError(f"{title}: weights must be {schedule.chunks} numbers of 0 or more, not all of them 0")


def _check_transfers(schedule: Schedule) -> None:
    n, slots = schedule.n, schedule.slots
    for t in schedule.transfers:
        if not (0 <= t.src < n and 0 <= t.dst < n and t.round >= 0):
            raise VerifyError(f"{schedule.title}: {t} must join positions below {n} in a round from 0 on")
        if not (0 <= t.chunk < slots and t.to < slots):
            raise VerifyError(f"{schedule.title}: {t} names a chunk outside 0 to {slots - 1}")
        if t.op not in ("copy", "reduce"):
            raise VerifyError(f"{schedule.title}: {t} must copy or reduce")


def _check_straggler(schedule: Schedule) -> None:
    late, first = schedule.straggler, schedule.first_phase
    if late is None and first:
        raise VerifyError(f"{schedule.title}: a first phase of {first} rounds needs a straggler")
    if late is None:
        return
    if not 0 <= late < schedule.n:
        raise VerifyError(f"{schedule.title}: straggler {late} must be a position below {schedule.n}")
    for t in schedule.transfers:
        if t.round < first and late in (t.src, t.dst):
            raise VerifyError(
                f"{schedule.title}: round {t.round}, position {t.dst}, chunk {t.slot}: the straggler {late} takes "
                f"part in the first phase"
            )


def _check_ports(schedule: Schedule, transfers: Iterable[Transfer]) -> None:
    """Check that each position sends to one peer and receives from one peer in a round and network."""
    peers: dict[tuple[str, int, bool], int] = {}
    for t in transfers:
        ends = (("sends to", t.src, t.dst, t.chunk), ("receives from", t.dst, t.src, t.slot))
        for does, position, peer, chunk in () if t.local else ends:
            if peers.setdefault((does, position, t.scale_up), peer) != peer:
                raise VerifyError(
                    f"{schedule.title}: round {t.round}, position {position}, chunk {chunk}: it {does} two peers, but "
                    "claims to use one port"
                )


def _start(schedule: Schedule) -> Values:
    n = schedule.n
    values: Values = [{} for _ in range(n)]
    for chunk in range(schedule.chunks):
        for position in _positions(n, schedule.starts_at(chunk)):
            values[position][schedule.input + chunk] = chunk << n | 1 << position
    return values


def _positions(n: int, only: int | None) -> Sequence[int]:
    return range(n) if only is None else (only,)


def _run_round(schedule: Schedule, values: Values, transfers: list[Transfer]) -> None:
    """Execute one round; every transfer reads the state at the start of the round."""
    n = schedule.n
    carried = [values[t.src].get(t.chunk, 0) for t in transfers]
    copied: set[tuple[int, int]] = set()
    reduced: set[tuple[int, int]] = set()
    for t, value in zip(transfers, carried, strict=True):
        slot = t.slot
        place = (t.dst, slot)
        if not value:
            raise VerifyError(f"{_place(schedule, t)}: position {t.src} sends a chunk that it does not hold")
        if place in copied or (t.op == "copy" and place in reduced):
            raise VerifyError(f"{_place(schedule, t)}: two transfers write the same chunk in one round")
        if t.op == "copy":
            copied.add(place)
            values[t.dst][slot] = value
            continue
        reduced.add(place)
        held = values[t.dst].get(slot, 0)
        if not held:
            raise VerifyError(f"{_place(schedule, t)}: reduces into a chunk that holds nothing")
        if (held ^ value) >> n:
            raise VerifyError(f"{_place(schedule, t)}: adds chunk {value >> n} to chunk {held >> n}")
        if held & value & ((1 << n) - 1):
            twice = _first(held & value & ((1 << n) - 1))
            raise VerifyError(f"{_place(schedule, t)}: the contribution of position {twice} is added twice")
        values[t.dst][slot] = held | value


def _check_end(schedule: Schedule, values: Values) -> None:
    n = schedule.n
    for chunk in range(schedule.chunks):
        start = schedule.starts_at(chunk)
        wanted = (1 << n) - 1 if start is None else 1 << start
        for position in _positions(n, schedule.ends_at(chunk)):
            held = values[position].get(chunk, 0)
            if held == chunk << n | wanted or (schedule.weights and not schedule.weights[chunk]):
                continue
            where = f"{schedule.title}: position {position}, chunk {chunk}: ends"
            if held and held >> n != chunk:
                raise VerifyError(f"{where} with chunk {held >> n} in its place")
            extra = held & ~wanted & ((1 << n) - 1)
            if extra:
                raise VerifyError(
                    f"{where} with the contribution of position {_first(extra)}, which does not belong there"
                )
            raise VerifyError(f"{where} without the contribution of position {_first(wanted & ~held)}")


def _first(mask: int) -> int:
    """The lowest position in a mask."""
    return (mask & -mask).bit_length() - 1


def _place(schedule: Schedule, t: Transfer) -> str:
    return f"{schedule.title}: round {t.round}, position {t.dst}, chunk {t.slot}"
