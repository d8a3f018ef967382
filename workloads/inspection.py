"""Contents of a workload file: its operations and the traffic between ranks; a collective as rounds. Nothing runs.

Bytes are those of the real system, payload only, counted from the same schedules that a run uses. A layer file of many
layers or ranks is counted from its plan, which is the same for all ranks, without a program; where even its pairs are
too many, bytes per rank follow from the bus factor of each collective (nccl-tests).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from railyard.errors import ConfigError, in_file
from workloads.catalog import Workload, is_recipe, load_workload, with_all_ranks, workload_of
from workloads.collectives.catalog import algorithm_for, schedule, schedule_of
from workloads.formats.detect import format_of, read_workload_file
from workloads.formats.layer_text import read_layer_file
from workloads.formats.layers import FORMAT as LAYERS_FORMAT
from workloads.formats.layers import Plan, Role, make_plan, unit_of
from workloads.formats.reading import Reading
from workloads.program import Collective, Compute, Program, Recv, Send
from workloads.pytorch.record import Record
from workloads.rank.exchange import ELEMENT_BYTES, elements_of
from workloads.schedule import CollectiveKind, Schedule, bus_factor

MOST_OPERATIONS = 20_000
"""Operations of all ranks beyond which a layer file is counted from its plan, and cannot be predicted."""
MOST_RANKS, MOST_MEMBERS = 2048, 64
"""Sizes of a job and of its groups up to which a plan's traffic is counted pair by pair."""
_BY_FACTOR = "bytes per rank follow from the bus factor of each collective; fewer ranks show every pair."
_RECORD = "record of a PyTorch step"
T = TypeVar("T")


@dataclass(frozen=True)
class CollectiveCount:
    """``count`` collectives of one kind and size, each over ``members`` ranks (0: the file does not say)."""

    kind: CollectiveKind
    bytes: int
    members: int
    count: int


@dataclass(frozen=True)
class Contents:
    """Contents of a workload file.

    ``bytes_sent`` and ``bytes_received`` are by rank, ``traffic`` has rows (source, destination, bytes). ``operations``
    counts those of all ranks by type, ``compute_s`` is the accelerator time of each rank. Fields are empty where the
    file alone is not sufficient: ``notes`` tell what is missing. ``workload`` is the input of a run.
    """

    file: str
    format: str
    name: str
    ranks: int | None = None
    layers: int | None = None
    operations: Mapping[str, int] = field(default_factory=dict)
    collectives: tuple[CollectiveCount, ...] = ()
    compute_s: tuple[float, ...] = ()
    bytes_sent: tuple[int, ...] = ()
    bytes_received: tuple[int, ...] = ()
    traffic: tuple[tuple[int, int, int], ...] = ()
    notes: tuple[str, ...] = ()
    workload: Workload | None = None

    def to_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "workload"}
        return {**fields, "collectives": [vars(row) for row in self.collectives], "notes": list(self.notes)}


def inspect_file(
    name_or_path: str,
    *,
    compute_unit: str | None = None,
    ranks: int | None = None,
    size: int | None = None,
    model_parallel: int | None = None,
    gpus_per_server: int | None = None,
) -> Contents:
    """Inspect a file, or a workload of the catalog; the options are those of ``load_workload``.

    A missing unit or number of ranks is a note here, not an error. Raises ``ConfigError`` for an invalid file.
    """
    path = Path(name_or_path)
    options: dict[str, Any] = {"ranks": ranks, "model_parallel": model_parallel}
    if is_recipe(name_or_path):
        workload = load_workload(
            name_or_path, **options, compute_unit=compute_unit, size=size, gpus_per_server=gpus_per_server, folded=True
        )
        record = workload.record
        if record is not None and (record.operations > MOST_OPERATIONS or record.ranks > MOST_RANKS):
            return _of_record(name_or_path, record, workload)
        return _of_workload(name_or_path, "recipe" if record is None else _RECORD, with_all_ranks(workload), ())
    with in_file(name_or_path):
        if format_of(path) == "layers" and size is None:
            return _layer_file(path, compute_unit, 1 if gpus_per_server is None else gpus_per_server, **options)
        reading, notes = _with_unit(
            lambda unit: read_workload_file(path, compute_unit=unit, size=size, **options), compute_unit
        )
        workload = workload_of(reading, 1 if gpus_per_server is None else gpus_per_server)
    return _of_workload(name_or_path, reading.format, workload, (*reading.notes, *notes))


def _with_unit(read: Callable[[str | None], T], compute_unit: str | None) -> tuple[T, tuple[str, ...]]:
    """The result of ``read`` for the unit of compute times; without them, and a note, where their unit is missing."""
    try:
        return read(compute_unit), ()
    except ConfigError as error:
        if error.key != "compute_unit" or compute_unit is not None:
            raise
        return read("ignore"), (f"compute is left out: {error}.",)


def _of_workload(source: str, format_: str, workload: Workload, notes: tuple[str, ...]) -> Contents:
    program = workload.program
    names = {Compute: "compute", Send: "send", Recv: "recv"}
    operations = Counter(
        op.kind if isinstance(op, Collective) else names[type(op)] for ops in program.operations for op in ops
    )
    collectives = Counter((op.kind, op.bytes, len(program.groups[op.group].members)) for op in _collectives(program))
    contents = Contents(
        file=source,
        format=format_,
        name=workload.name,
        ranks=program.ranks,
        operations=operations,
        collectives=_counts(collectives),
        compute_s=tuple(sum(op.seconds for op in ops if isinstance(op, Compute)) for ops in program.operations),
        notes=notes,
        workload=workload,
    )
    if all(len(program.groups[op.group].members) <= MOST_MEMBERS for op in _collectives(program)):
        return _with_traffic(contents, traffic_of(program))
    sent, received = _without_pairs(program)
    return replace(contents, bytes_sent=sent, bytes_received=received, notes=(*notes, _BY_FACTOR))


def _of_record(source: str, record: Record, workload: Workload) -> Contents:
    """Contents of a record of many ranks, counted by classes of equal ones; ``workload`` is what the model plays."""
    operations: Counter[str] = Counter()
    members: Counter[tuple[CollectiveKind, int, int]] = Counter()
    compute_s, sent, received = [0.0] * record.ranks, [0] * record.ranks, [0] * record.ranks
    for ranks in record.classes:
        operations["compute"] += len(ranks.ranks) * (ranks.operations - len(ranks.calls))
        out = back = 0
        for call in ranks.calls:
            operations[call.kind] += len(ranks.ranks)
            if call.kind == "send" or call.kind == "recv":
                out, back = out + call.bytes * (call.kind == "send"), back + call.bytes * (call.kind == "recv")
                continue
            size = len(record.roles[call.role].group_of[ranks.ranks[0]])
            members[call.kind, call.bytes, size] += len(ranks.ranks)
            moved = round(bus_factor(call.kind, size) * call.bytes)
            out, back = out + moved, back + moved
        for rank in ranks.ranks:
            sent[rank], received[rank] = out, back
            compute_s[rank] = ranks.compute_s
    return Contents(
        file=source,
        format=_RECORD,
        name=record.name,
        ranks=record.ranks,
        operations=operations,
        collectives=_counts({key: count // key[2] for key, count in members.items()}),
        compute_s=tuple(compute_s),
        bytes_sent=tuple(sent),
        bytes_received=tuple(received),
        notes=(_BY_FACTOR,),
        workload=workload,
    )


def _without_pairs(program: Program) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes that each rank sends and receives, those of collectives by their bus factor."""
    sent, received = [0] * program.ranks, [0] * program.ranks
    for rank, operations in enumerate(program.operations):
        for op in operations:
            if isinstance(op, Send):
                sent[rank] += op.bytes
                received[op.peer] += op.bytes
            elif isinstance(op, Collective):
                size = round(bus_factor(op.kind, len(program.groups[op.group].members)) * op.bytes)
                sent[rank] += size
                received[rank] += size
    return tuple(sent), tuple(received)


def _with_traffic(contents: Contents, traffic: Mapping[tuple[int, int], int]) -> Contents:
    sent, received = _ends(contents.ranks or 0, traffic)
    rows = tuple((src, dst, size) for (src, dst), size in sorted(traffic.items()))
    return replace(contents, bytes_sent=tuple(sent), bytes_received=tuple(received), traffic=rows)


def _counts(counted: Mapping[tuple[CollectiveKind, int, int], int]) -> tuple[CollectiveCount, ...]:
    """The collectives by (kind, bytes, members), in this order."""
    return tuple(CollectiveCount(*key, count) for key, count in sorted(counted.items()))


def _collectives(program: Program) -> Iterator[Collective]:
    """Every collective of a program once: as its first member has it."""
    for rank, operations in enumerate(program.operations):
        for op in operations:
            if isinstance(op, Collective) and program.groups[op.group].members[0] == rank:
                yield op


def traffic_of(program: Program) -> dict[tuple[int, int], int]:
    """Bytes that each rank sends to each other in one step, by (source, destination)."""
    traffic: Counter[tuple[int, int]] = Counter()
    for rank, operations in enumerate(program.operations):
        for op in operations:
            if isinstance(op, Send):
                traffic[rank, op.peer] += elements_of(op.bytes) * ELEMENT_BYTES
    repeated = Counter(replace(op, id=0, name="", deps=()) for op in _collectives(program))
    for op, times in repeated.items():
        _add(traffic, _moved(schedule_of(program, op), op.bytes), [program.groups[op.group].members], times)
    return dict(traffic)


def _add(
    traffic: Counter[tuple[int, int]],
    moved: Mapping[tuple[int, int], int],
    groups: Iterable[Sequence[int]],
    times: int,
) -> None:
    """Add what ``times`` collectives in each of ``groups`` move, from the bytes between positions in one of them."""
    for members in groups:
        for (src, dst), size in moved.items():
            traffic[members[src], members[dst]] += size * times


@lru_cache(maxsize=4096)
def _moved(plan: Schedule, size: int) -> dict[tuple[int, int], int]:
    """Bytes between positions in one collective of ``size`` bytes."""
    bounds = plan.chunk_bounds(elements_of(size))
    moved: dict[tuple[int, int], int] = defaultdict(int)
    for t in plan.transfers:
        if not t.local:
            start, end = bounds[t.chunk]
            moved[t.src, t.dst] += (end - start) * ELEMENT_BYTES
    return dict(moved)


def work_of(program: Program) -> int:
    """Number of items to simulate in a step: computes, messages, and transfers of collectives, of all ranks."""
    alone = sum(not isinstance(op, Collective) for ops in program.operations for op in ops)
    return alone + sum(len(schedule_of(program, op).transfers) for op in _collectives(program))


# -- layer files -----------------------------------------------------------------------------------


def _layer_file(
    path: Path, compute_unit: str | None, gpus_per_server: int, ranks: int | None, model_parallel: int | None
) -> Contents:
    file = read_layer_file(path)
    unit, notes = _with_unit(lambda name: unit_of(file, name), compute_unit)
    alone = Contents(
        file=str(path), format=f"{LAYERS_FORMAT}, {file.parallelism}", name=path.stem, layers=len(file.layers)
    )
    try:
        plan = make_plan(file, unit, ranks, model_parallel)
    except ConfigError as error:
        if ranks is not None or error.key not in ("ranks", "model_parallel"):
            raise
        counted = Counter((part.kind, part.bytes, 0) for layer in file.layers for part in layer.parts if part.kind)
        notes = (*notes, f"the traffic between ranks is not known: {error}.")
        return replace(alone, collectives=_counts(counted), notes=notes)
    notes = (*plan.notes, *notes)
    if plan.layout.ranks > MOST_RANKS or plan.layout.ranks * len(plan.steps) > MOST_OPERATIONS:
        return _of_plan(plan, replace(alone, notes=notes))
    workload = workload_of(Reading(LAYERS_FORMAT, plan.program()), gpus_per_server)
    return replace(_of_workload(alone.file, alone.format, workload, notes), layers=alone.layers)


def _of_plan(plan: Plan, alone: Contents) -> Contents:
    layout, steps = plan.layout, plan.steps
    sizes = {role: layout.size(role) for role in plan.roles}
    operations: Counter[str] = Counter()
    counted: Counter[tuple[CollectiveKind, int, Role]] = Counter()
    rows: Counter[tuple[CollectiveKind, int, int]] = Counter()
    for step in steps:
        operations[step.kind if isinstance(step, Collective) else "compute"] += layout.ranks
        if isinstance(step, Collective):
            role = cast(Role, step.group)
            counted[step.kind, step.bytes, role] += 1
            rows[step.kind, step.bytes, sizes[role]] += layout.ranks // sizes[role]
    contents = replace(
        alone,
        ranks=layout.ranks,
        operations=operations,
        collectives=_counts(rows),
        compute_s=(sum((step.seconds for step in steps if isinstance(step, Compute)), 0.0),) * layout.ranks,
    )
    notes = alone.notes
    if layout.ranks <= MOST_RANKS and all(size <= MOST_MEMBERS for size in sizes.values()):
        traffic: Counter[tuple[int, int]] = Counter()
        for (kind, size, role), times in counted.items():
            moved = _moved(schedule(kind, sizes[role], algorithm_for(kind, "scale-out")), size)
            _add(traffic, moved, (group.members for group in layout.groups(role)), times)
        contents = _with_traffic(contents, traffic)
    else:
        rank_bytes = sum(bus_factor(kind, sizes[role]) * size * times for (kind, size, role), times in counted.items())
        sent = (round(rank_bytes),) * layout.ranks
        contents = replace(contents, bytes_sent=sent, bytes_received=sent)
        notes = (*notes, _BY_FACTOR)
    many = f"{layout.ranks} ranks x {len(steps)} operations are too many to predict a run of them."
    return replace(contents, notes=(*notes, many))


# -- schedules -------------------------------------------------------------------------------------


def schedule_json(plan: Schedule) -> dict[str, Any]:
    """A schedule as rounds of ``[src, dst, chunk, "copy"|"reduce"]``, for other programs.

    The transfers of a round read the state at its start; ``reduce`` means dst[chunk] += src[chunk]. The first
    ``phase1_rounds`` rounds do not use the straggler; ``chunk_owner[c]`` is the position that the schedule gives chunk
    c. A transfer that writes another slot than it reads has that slot as a fifth item.
    """
    return {
        "algorithm": plan.algorithm,
        "kind": plan.kind,
        "n": plan.n,
        "straggler": plan.straggler,
        "chunks": plan.chunks,
        "chunk_owner": list(plan.owner),
        "phase1_rounds": plan.first_phase,
        "rounds": rounds_of(plan),
    }


def rounds_of(plan: Schedule) -> list[list[list[int | str]]]:
    rounds: list[list[list[int | str]]] = [[] for _ in range(plan.rounds)]
    for t in sorted(plan.transfers, key=lambda t: (t.round, t.src, t.chunk, t.dst)):
        row: list[int | str] = [t.src, t.dst, t.chunk, t.op]
        rounds[t.round].append(row if t.slot == t.chunk else [*row, t.slot])
    return rounds


def sent_by_position(plan: Schedule, size: int) -> tuple[list[int], list[int]]:
    """Bytes that each position sends and receives for a buffer of ``size`` bytes."""
    return _ends(plan.n, _moved(plan, size))


def _ends(n: int, moved: Mapping[tuple[int, int], int]) -> tuple[list[int], list[int]]:
    sent, received = [0] * n, [0] * n
    for (src, dst), size in moved.items():
        sent[src] += size
        received[dst] += size
    return sent, received
