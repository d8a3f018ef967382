"""Contents of a workload file: its operations and the traffic between ranks; a collective as rounds. Nothing runs.

Bytes are those of the real system, payload only, counted from the same schedules that a run uses. A layer file of many
layers or ranks is counted from its plan, which is the same for all ranks, without a program; where even its pairs are
too many, bytes per rank follow from the bus factor of each collective (nccl-tests).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from railyard.errors import ConfigError
from workloads.catalog import CATALOG, Workload, load_workload, unknown_workload, workload_of
from workloads.collectives.bandwidth import bus_factor
from workloads.collectives.catalog import algorithm_for, schedule, schedule_of
from workloads.formats.detect import Format, format_of, read_workload_file
from workloads.formats.layer_groups import GroupLayout, Role
from workloads.formats.layer_text import LayerFile, read_layer_file
from workloads.formats.layers import FORMAT as LAYERS_FORMAT
from workloads.formats.layers import Plan, make_plan
from workloads.formats.reading import Reading
from workloads.formats.units import read_unit
from workloads.program import Collective, Compute, Program, Recv, Send
from workloads.rank.exchange import ELEMENT_BYTES, elements_of
from workloads.schedule import CollectiveKind, Schedule

MOST_OPERATIONS = 20_000
"""Operations of all ranks beyond which a layer file is counted from its plan, and cannot be predicted."""
MOST_RANKS, MOST_MEMBERS = 2048, 64
"""Sizes of a job and of its groups up to which a plan's traffic is counted pair by pair."""
IGNORE = "ignore"


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

    ``sent`` and ``received`` are bytes by rank, ``traffic`` rows (source, destination, bytes). ``operations`` counts
    those of all ranks by type, ``compute_s`` is the accelerator time of each rank. Fields are empty where the file
    alone is not sufficient: ``notes`` tell what is missing. ``workload`` is the input of a run.
    """

    source: str
    format: str
    name: str
    ranks: int | None = None
    layers: int | None = None
    operations: tuple[tuple[str, int], ...] = ()
    collectives: tuple[CollectiveCount, ...] = ()
    compute_s: tuple[float, ...] = ()
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    traffic: tuple[tuple[int, int, int], ...] = ()
    notes: tuple[str, ...] = ()
    workload: Workload | None = None


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
    options: dict[str, Any] = {"compute_unit": compute_unit, "ranks": ranks, "size": size,
                               "model_parallel": model_parallel}  # fmt: skip
    if name_or_path in CATALOG or path.suffix in (".yaml", ".yml"):
        workload = load_workload(name_or_path, **options, gpus_per_server=gpus_per_server)
        return of_workload(name_or_path, "recipe", workload, ())
    if _known_format(path) == "layers" and size is None:
        return _layer_file(path, compute_unit, ranks, model_parallel, gpus_per_server)
    reading, notes = _read(path, options)
    workload = workload_of(reading, gpus_per_server or 1)
    return of_workload(name_or_path, reading.format, workload, (*reading.notes, *notes))


def _known_format(path: Path) -> Format:
    """The format of a file; a bare name without a file is reported as an unknown workload."""
    try:
        return format_of(path)
    except ConfigError:
        if path.exists() or path.suffix or path.parent != Path():
            raise
        raise unknown_workload(str(path)) from None


def _read(path: Path, options: dict[str, Any]) -> tuple[Reading, tuple[str, ...]]:
    """Read the file; without its compute times where their unit is missing."""
    try:
        return read_workload_file(path, **options), ()
    except ConfigError as error:
        if error.key != "compute_unit" or options["compute_unit"] is not None:
            raise
        reading = read_workload_file(path, **{**options, "compute_unit": IGNORE})
        return reading, (f"compute is left out: {error}.",)


def of_workload(source: str, format_: str, workload: Workload, notes: tuple[str, ...]) -> Contents:
    """Contents of a workload: operations, collectives and traffic of its program."""
    program = workload.program
    traffic = traffic_of(program)
    sent, received = _ends(program.ranks, traffic.items())
    return Contents(
        source=source,
        format=format_,
        name=workload.name,
        ranks=program.ranks,
        operations=tuple(_operation_counts(program).items()),
        collectives=_collective_counts(program),
        compute_s=tuple(sum(op.seconds for op in ops if isinstance(op, Compute)) for ops in program.operations),
        sent=tuple(sent),
        received=tuple(received),
        traffic=tuple((src, dst, size) for (src, dst), size in sorted(traffic.items())),
        notes=notes,
        workload=workload,
    )


def traffic_of(program: Program) -> dict[tuple[int, int], int]:
    """Bytes that each rank sends to each other in one step, by (source, destination)."""
    found: dict[tuple[int, int], int] = defaultdict(int)
    repeated: Counter[tuple[str, CollectiveKind, int, str]] = Counter()
    for rank, operations in enumerate(program.operations):
        for op in operations:
            if isinstance(op, Send):
                found[rank, op.peer] += elements_of(op.bytes) * ELEMENT_BYTES
            elif isinstance(op, Collective) and program.groups[op.group].members[0] == rank:
                repeated[op.group, op.kind, op.bytes, op.algorithm] += 1
    for (group, kind, size, algorithm), times in repeated.items():
        members = program.groups[group].members
        plan = schedule_of(program, Collective(0, kind, kind, group, size, algorithm=algorithm))
        for (src, dst), moved in _moved(plan, size).items():
            found[members[src], members[dst]] += moved * times
    return dict(found)


@lru_cache(maxsize=4096)
def _moved(plan: Schedule, size: int) -> dict[tuple[int, int], int]:
    """Bytes between positions in one collective of ``size`` bytes."""
    bounds = plan.chunk_bounds(elements_of(size))
    found: dict[tuple[int, int], int] = defaultdict(int)
    for t in plan.transfers:
        if not t.local:
            start, end = bounds[t.chunk]
            found[t.src, t.dst] += (end - start) * ELEMENT_BYTES
    return dict(found)


def _operation_counts(program: Program) -> Counter[str]:
    """Operations of all ranks by type; a collective counts on each of its members."""
    names = {Compute: "compute", Send: "send", Recv: "recv"}
    return Counter(
        op.kind if isinstance(op, Collective) else names[type(op)] for ops in program.operations for op in ops
    )


def _collective_counts(program: Program) -> tuple[CollectiveCount, ...]:
    counted: Counter[tuple[CollectiveKind, int, int]] = Counter()
    for rank, operations in enumerate(program.operations):
        for op in operations:
            if isinstance(op, Collective):
                members = program.groups[op.group].members
                if members[0] == rank:
                    counted[op.kind, op.bytes, len(members)] += 1
    return tuple(CollectiveCount(*key, count) for key, count in sorted(counted.items()))


def work_of(program: Program) -> int:
    """Number of items to simulate in a step: computes, messages, and transfers of collectives, of all ranks."""
    total = 0
    for rank, operations in enumerate(program.operations):
        for op in operations:
            if not isinstance(op, Collective):
                total += 1
            elif program.groups[op.group].members[0] == rank:
                total += len(schedule_of(program, op).transfers)
    return total


# -- layer files -----------------------------------------------------------------------------------


def _layer_file(
    path: Path, compute_unit: str | None, ranks: int | None, model_parallel: int | None, gpus: int | None
) -> Contents:
    file = read_layer_file(path)
    notes: list[str] = []
    try:
        plan = make_plan(file, read_unit(compute_unit), ranks, model_parallel)
    except ConfigError as error:
        if error.key != "compute_unit" or compute_unit is not None:
            return _layers_alone(file, ranks, error)
        notes.append(f"compute is left out: {error}.")
        try:
            plan = make_plan(file, read_unit(IGNORE), ranks, model_parallel)
        except ConfigError as missing:
            return _layers_alone(file, ranks, missing, tuple(notes))
    if plan.layout.ranks * len(plan.steps) > MOST_OPERATIONS:
        found = _of_plan(plan, (*plan.notes, *notes))
    else:
        workload = workload_of(Reading(LAYERS_FORMAT, plan.program()), gpus or 1)
        found = of_workload(str(path), LAYERS_FORMAT, workload, (*plan.notes, *notes))
    return replace(found, source=str(path), layers=len(file.layers), format=f"{LAYERS_FORMAT}, {file.parallelism}")


def _layers_alone(file: LayerFile, ranks: int | None, why: ConfigError, notes: tuple[str, ...] = ()) -> Contents:
    """Contents of the layers where the number of ranks is unknown; other errors are raised."""
    if ranks is not None or why.key not in ("ranks", "model_parallel"):
        raise why
    counted = Counter((part.kind, part.bytes) for layer in file.layers for part in layer.parts if part.kind)
    return Contents(
        source=file.source,
        format=f"{LAYERS_FORMAT}, {file.parallelism}",
        name=Path(file.source).stem,
        layers=len(file.layers),
        collectives=tuple(CollectiveCount(kind, size, 0, n) for (kind, size), n in sorted(counted.items())),
        notes=(*notes, f"the traffic between ranks is not known: {why}."),
    )


def _of_plan(plan: Plan, notes: tuple[str, ...]) -> Contents:
    """Contents of a plan, without a list for every rank."""
    layout, steps = plan.layout, plan.steps
    counted: Counter[tuple[CollectiveKind, int, Role]] = Counter()
    operations: Counter[str] = Counter()
    for step in steps:
        operations[step.kind or "compute"] += layout.ranks
        if step.kind is not None:
            counted[step.kind, step.bytes, step.role] += 1
    traffic: dict[tuple[int, int], int] = {}
    if layout.ranks <= MOST_RANKS and all(layout.size(role) <= MOST_MEMBERS for _, _, role in counted):
        traffic = _plan_traffic(layout, counted)
        sent, received = _ends(layout.ranks, traffic.items())
    else:
        each = sum(bus_factor(kind, layout.size(role)) * size * n for (kind, size, role), n in counted.items())
        sent = received = [round(each)] * layout.ranks
        notes = (*notes, "bytes per rank follow from the bus factor of each collective; fewer ranks show every pair.")
    rows: Counter[tuple[CollectiveKind, int, int]] = Counter()
    for (kind, size, role), n in counted.items():
        rows[kind, size, layout.size(role)] += n * (layout.ranks // layout.size(role))
    return Contents(
        source="",
        format=LAYERS_FORMAT,
        name=plan.name,
        ranks=layout.ranks,
        operations=tuple(operations.items()),
        collectives=tuple(CollectiveCount(*key, n) for key, n in sorted(rows.items())),
        compute_s=(sum(step.seconds for step in steps),) * layout.ranks,
        sent=tuple(sent),
        received=tuple(received),
        traffic=tuple((src, dst, size) for (src, dst), size in sorted(traffic.items())),
        notes=(*notes, f"{layout.ranks} ranks x {len(steps)} operations are too many to predict a run of them."),
    )


def _plan_traffic(
    layout: GroupLayout, counted: Counter[tuple[CollectiveKind, int, Role]]
) -> dict[tuple[int, int], int]:
    """Bytes between ranks: those between the positions of a group, for every group."""
    between: dict[Role, Counter[tuple[int, int]]] = defaultdict(Counter)
    for (kind, size, role), times in counted.items():
        members = layout.size(role)
        for pair, moved in _moved(schedule(kind, members, algorithm_for(kind, "scale-out")), size).items():
            between[role][pair] += moved * times
    found: Counter[tuple[int, int]] = Counter()
    for role, pairs in between.items():
        for ranks in {layout.members(role, rank) for rank in range(layout.ranks)}:
            for (src, dst), moved in pairs.items():
                found[ranks[src], ranks[dst]] += moved
    return dict(found)


def contents_json(contents: Contents) -> dict[str, Any]:
    """Plain data for ``json.dump``; ``compute_s`` and bytes are lists by rank."""
    return {
        "file": contents.source,
        "format": contents.format,
        "name": contents.name,
        "ranks": contents.ranks,
        "layers": contents.layers,
        "operations": dict(contents.operations),
        "collectives": [vars(one) for one in contents.collectives],
        "compute_s": list(contents.compute_s),
        "bytes_sent": list(contents.sent),
        "bytes_received": list(contents.received),
        "traffic": [list(row) for row in contents.traffic],
        "notes": list(contents.notes),
    }


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
    """The transfers by round, in order of sender and chunk."""
    rounds: list[list[list[int | str]]] = [[] for _ in range(plan.rounds)]
    for t in sorted(plan.transfers, key=lambda t: (t.round, t.src, t.chunk, t.dst)):
        row: list[int | str] = [t.src, t.dst, t.chunk, t.op]
        rounds[t.round].append(row if t.slot == t.chunk else [*row, t.slot])
    return rounds


def sent_by_position(plan: Schedule, size: int) -> tuple[list[int], list[int]]:
    """Bytes that each position sends and receives for a buffer of ``size`` bytes."""
    return _ends(plan.n, _moved(plan, size).items())


def _ends(n: int, moved: Iterable[tuple[tuple[int, int], int]]) -> tuple[list[int], list[int]]:
    sent, received = [0] * n, [0] * n
    for (src, dst), size in moved:
        sent[src] += size
        received[dst] += size
    return sent, received
