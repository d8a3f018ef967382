"""One rank's part of one communication: which message may go now, which arrived one may be applied. Pure.

Built on the order of what happens to each chunk: round by round, a rank's sends of a chunk read it before what arrives
in the same round changes it (``Transfer``: it reads the state at the start of its round). Chunks do not wait for each
other, so a ring keeps all its links busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from railyard.errors import VerifyError
from workloads.schedule import Schedule, Transfer

ELEMENT_BYTES = 4
"""Buffers are made of float32 elements, also when their content does not matter."""


@dataclass(frozen=True)
class Part:
    """One transfer as one of its two ends sees it: elements ``start`` to ``end`` to or from rank ``peer``."""

    transfer: int
    peer: int
    chunk: int
    lane: int
    start: int
    end: int
    reduce: bool

    @property
    def bytes(self) -> int:
        """Payload bytes."""
        return (self.end - self.start) * ELEMENT_BYTES


@dataclass(frozen=True)
class Progress:
    """What an arrival sets free: first apply ``apply`` to the buffer, in order, then read and send ``send``.

    ``steps`` holds both in the one order that is right: (is it a send, part).
    """

    steps: tuple[tuple[bool, Part], ...] = ()

    @property
    def send(self) -> list[Part]:
        """Parts to send."""
        return [part for is_send, part in self.steps if is_send]

    @property
    def apply(self) -> list[Part]:
        """Arrived parts to add or store."""
        return [part for is_send, part in self.steps if not is_send]


@dataclass
class _Chunk:
    """Rounds of one chunk in order; ``due`` = (sends, arrivals awaited) of each round, first the current one."""

    rounds: list[tuple[list[Part], set[int]]]
    here: dict[int, Part] = field(default_factory=dict)


class Exchange:
    """The part of ``rank`` in one collective or point-to-point transfer."""

    def __init__(self, outgoing: Iterable[tuple[int, Part]], incoming: Iterable[tuple[int, Part]]) -> None:
        """``outgoing`` and ``incoming`` are (round, part)."""
        by_chunk: dict[int, dict[int, tuple[list[Part], set[int]]]] = {}
        self.incoming: dict[int, Part] = {}
        self.outgoing: list[Part] = []
        for number, part in outgoing:
            self.outgoing.append(part)
            by_chunk.setdefault(part.chunk, {}).setdefault(number, ([], set()))[0].append(part)
        for number, part in incoming:
            self.incoming[part.transfer] = part
            by_chunk.setdefault(part.chunk, {}).setdefault(number, ([], set()))[1].add(part.transfer)
        self._chunks = {chunk: _Chunk([rounds[r] for r in sorted(rounds)]) for chunk, rounds in by_chunk.items()}
        self._awaited = set(self.incoming)

    @property
    def received_all(self) -> bool:
        """Every incoming part has arrived."""
        return not self._awaited

    @property
    def awaited(self) -> tuple[Part, ...]:
        """Incoming parts that have not arrived."""
        return tuple(self.incoming[transfer] for transfer in sorted(self._awaited))

    def begin(self) -> Progress:
        """What can be sent at once."""
        steps: list[tuple[bool, Part]] = []
        for chunk in self._chunks.values():
            steps += _advance(chunk, fresh=True)
        return Progress(tuple(steps))

    def arrived(self, transfer: int) -> Progress:
        """The payload of ``transfer`` is here. ``VerifyError`` if it is not awaited."""
        if transfer not in self._awaited:
            raise VerifyError(f"transfer {transfer} arrived, which this rank does not await (any more)")
        self._awaited.remove(transfer)
        part = self.incoming[transfer]
        chunk = self._chunks[part.chunk]
        chunk.here[transfer] = part
        return Progress(tuple(_advance(chunk, fresh=False)))


def _advance(chunk: _Chunk, fresh: bool) -> list[tuple[bool, Part]]:
    """Play the chunk's rounds as far as what has arrived allows; ``fresh``: the current round's sends are not out."""
    steps: list[tuple[bool, Part]] = []
    while chunk.rounds:
        sends, awaited = chunk.rounds[0]
        if fresh:
            steps += [(True, part) for part in sends]
        for transfer in sorted(awaited & chunk.here.keys()):
            awaited.remove(transfer)
            steps.append((False, chunk.here.pop(transfer)))
        if awaited:
            break
        chunk.rounds.pop(0)
        fresh = True
    return steps


def collective_exchange(
    schedule: Schedule,
    members: Sequence[int],
    rank: int,
    elements: int,
    mine: Iterable[tuple[int, Transfer]] | None = None,
) -> Exchange:
    """The part of ``rank`` in ``schedule`` over ``members`` on a buffer of ``elements`` float32.

    ``mine``: the numbered transfers that the rank takes part in, where the caller knows them already.
    """
    me = members.index(rank)
    bounds = schedule.chunk_bounds(elements)

    def part(number: int, transfer: Transfer, peer: int) -> tuple[int, Part]:
        start, end = bounds[transfer.chunk]
        reduce = transfer.op == "reduce"
        return transfer.round, Part(number, members[peer], transfer.chunk, transfer.lane, start, end, reduce)

    numbered = list(enumerate(schedule.transfers) if mine is None else mine)
    return Exchange(
        [part(n, t, t.dst) for n, t in numbered if t.src == me],
        [part(n, t, t.src) for n, t in numbered if t.dst == me],
    )


def send_exchange(peer: int, elements: int) -> Exchange:
    """A send of the whole buffer to ``peer``."""
    return Exchange([(0, Part(0, peer, 0, 0, 0, elements, False))], [])


def recv_exchange(peer: int, elements: int) -> Exchange:
    """A receive of the whole buffer from ``peer``."""
    return Exchange([], [(0, Part(0, peer, 0, 0, 0, elements, False))])


def elements_of(emulated_bytes: int) -> int:
    """float32 elements that carry ``emulated_bytes`` (rounded up)."""
    return -(-emulated_bytes // ELEMENT_BYTES)
