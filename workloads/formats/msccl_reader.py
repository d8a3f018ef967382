"""Reads MSCCL XML, the format of Microsoft's MSCCL tools and runtime, as a verified Schedule.

Semantics are those of the interpreter of Azure/msccl-executor-nccl: a threadblock runs its steps in order; messages
between two threadblocks on a channel arrive in order; ``depid`` and ``deps`` name a step of another threadblock that
must be done before. Buffers are laid out as in NCCL, in place where the file says so.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count, groupby
from operator import attrgetter
from pathlib import Path

from railyard.errors import VerifyError
from railyard.reading import read_text
from workloads.collectives.verify import verify
from workloads.formats import msccl_xml
from workloads.formats.msccl_algo import Algo, StepId
from workloads.formats.msccl_moves import Edge, Moves
from workloads.formats.msccl_order import Order, order
from workloads.formats.msccl_program import build
from workloads.schedule import Schedule, Transfer

_NAMED = ("all_to_all", "gather", "scatter")
"""Kinds whose positions have no place for a chunk that they only forward; their transfers are named by their chunk."""

_ATTEMPTS = 3
"""Attempts to find the transfers that must land in separate slots; after these, all do."""


def read_msccl(path: Path | str) -> Schedule:
    """The verified schedule in an MSCCL XML file.

    Raises ``ConfigError`` with file and line for a file that is malformed or can never finish, ``VerifyError`` with the
    file, a position and a chunk for one that does not perform the collective of its ``coll``.
    """
    return parse_msccl(read_text(Path(path), msccl_xml.MAX_BYTES, "an MSCCL file"), str(path))


def parse_msccl(text: str, source: str) -> Schedule:
    """The schedule in the text of an MSCCL XML file; ``source`` names it in errors, as in ``read_msccl``.

    Every transfer has the earliest round that its threadblock, its dependencies and the slots that it reads and writes
    allow. Channels are not kept: they share the wire.
    """
    algo = build(msccl_xml.parse(text, source))
    sequence = order(algo)
    try:
        return _verified(algo, sequence)
    except VerifyError as error:
        raise VerifyError(f"{source}: {error}") from None


def _verified(algo: Algo, sequence: Order) -> Schedule:
    """The schedule, with the interpretation of receive-reduce steps that can be verified.

    The interpreter adds the received chunk to ``src`` of the receiver; compilers mean ``dst`` and write the sender's
    place as ``src``. Where the two differ and the first does not perform the collective, the second may.
    """
    try:
        return _schedule(algo, sequence, sum_at_dst=False)
    except VerifyError:
        if all(s.type[:2] != "rr" or s.src == s.dst for s in sequence.steps):
            raise
        try:
            return _schedule(algo, sequence, sum_at_dst=True)
        except VerifyError:
            pass
        raise


def _schedule(algo: Algo, sequence: Order, *, sum_at_dst: bool) -> Schedule:
    """Assign rounds to all moves, and verify the result."""
    apart: frozenset[StepId] = frozenset()
    for attempt in count():
        moves = Moves(algo, sequence, apart, sum_at_dst)
        when, cyclic = _rounds(moves.after)
        if not cyclic:
            break
        # a cycle contains a transfer that arrives long before its receive: let it land in separate slots
        early = {moves.wires[node] for node in cyclic if node in moves.wires}
        assert early  # all other constraints follow the order in which the steps ran
        # one attempt nearly always suffices; for a file that needs many more, all transfers land separately
        apart = apart | early if attempt < _ATTEMPTS else frozenset(sequence.sender.values())
    transfers = [
        Transfer(when[move.node], move.src, move.dst, read, move.op, 0, -1 if read == write else write)
        for move in moves.moves
        for read, write in zip(move.reads, move.writes, strict=True)
    ]
    made = Schedule(
        algorithm=algo.name,
        kind=algo.kind,
        n=algo.n,
        chunks=algo.total,
        owner=algo.owner,
        transfers=_without_gaps(transfers),
        root=algo.root,
        scratch=algo.temporary + max(moves.temporaries) - algo.total,
        input=algo.input,
    )
    verify(made)
    if algo.kind in _NAMED:
        made = _named_by_chunk(made)
    made = replace(made, one_port=_one_port(made.transfers))
    verify(made)
    return made


def _rounds(after: list[list[Edge]]) -> tuple[list[int], set[int]]:
    """The earliest round of every node (the longest path), and the nodes in cycles that have none.

    ``after[u]`` are the constraints on the nodes that come after u. Nodes in a cycle of zeros share a round; a cycle
    with a one in it has no rounds, and those of all nodes are then meaningless.
    """
    from networkx import DiGraph, strongly_connected_components

    graph = DiGraph()
    graph.add_nodes_from(range(len(after)))
    graph.add_edges_from((u, v) for u, edges in enumerate(after) for v, _ in edges)
    components = list(strongly_connected_components(graph))
    component = {u: number for number, nodes in enumerate(components) for u in nodes}
    start = [0] * len(components)
    cyclic: set[int] = set()
    # the algorithm of networkx (Tarjan's) finds a component after all of its successors
    for number in reversed(range(len(components))):
        for u in components[number]:
            for v, weight in after[u]:
                if component[v] != number:
                    start[component[v]] = max(start[component[v]], start[number] + weight)
                elif weight:
                    cyclic.add(number)
    return [start[component[u]] for u in range(len(after))], {u for number in cyclic for u in components[number]}


def _named_by_chunk(schedule: Schedule) -> Schedule:
    """The same transfers in place, each named by the chunk that it carries; ``schedule`` must only copy.

    Chunks do not change on their way, so local copies and scratch are not needed. Where one chunk comes to a position
    twice in one round the slots stay as they are.
    """
    held: list[dict[int, int]] = [{} for _ in range(schedule.n)]
    for chunk, owner in enumerate(schedule.owner):
        held[schedule.root if schedule.kind == "scatter" else owner][schedule.input + chunk] = chunk
    named: list[Transfer] = []
    for _, group in groupby(schedule.transfers, key=attrgetter("round")):
        now = list(group)
        carried = [held[t.src][t.chunk] for t in now]
        for t, chunk in zip(now, carried, strict=True):
            held[t.dst][t.slot] = chunk
            if not t.local:
                named.append(Transfer(t.round, t.src, t.dst, chunk, "copy"))
    if len({(t.round, t.dst, t.chunk) for t in named}) < len(named):
        return schedule
    return replace(schedule, transfers=_without_gaps(named), scratch=0, input=0)


def _without_gaps(transfers: list[Transfer]) -> tuple[Transfer, ...]:
    """The transfers in order, in rounds 0, 1, 2, ..."""
    number = {round_: k for k, round_ in enumerate(sorted({t.round for t in transfers}))}
    return tuple(sorted(replace(t, round=number[t.round]) for t in transfers))


def _one_port(transfers: tuple[Transfer, ...]) -> bool:
    """Whether each position sends to at most one other and receives from at most one other in every round."""
    links = {(t.round, t.src, t.dst) for t in transfers if not t.local}
    return len(links) == len({(r, src) for r, src, _ in links}) == len({(r, dst) for r, _, dst in links})
