"""The step of a PyTorch script as a workload: recorded by real processes or read, with computes as the run has them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from experiments.script import RankPlace, ScriptTeam, UserScript, any_rank, trace_of
from experiments.torch.settings import DEFAULT_RANKS, TorchSettings
from railyard.errors import ConfigError
from railyard.ownership import temporary_folder
from workloads.catalog import Workload, recorded_workload
from workloads.program import Collective, Compute, Operation, Program
from workloads.pytorch.build import record_of
from workloads.pytorch.record import Record
from workloads.pytorch.record_file import read_record
from workloads.pytorch.script_ranks import RecordedCall
from workloads.pytorch.trace import RankTrace, StepEnd, read_trace

PORT_GBPS = 0.1
"""Rate of a port: the gradients of a debug model then take seconds."""
SCALE_UP_GBPS = 1.0


def script_of(settings: TorchSettings, ranks: int, gpus_per_server: int) -> UserScript:
    """The script of the settings with ``ranks``, as before the calls of a record are known."""
    order = any_rank(
        ranks,
        gpus_per_server,
        steps=settings.most_steps,
        setup_steps=settings.setup_steps,
        front_end_below=settings.front_end_below,
        compute=settings.compute.partition("given:")[0] or "recorded",
    )
    return UserScript(settings.script, settings.words, order, strict=settings.strict, timeout_s=settings.timeout_s)


def recorded(settings: TorchSettings, say: Callable[[str], None]) -> tuple[Record, tuple[str, ...]]:
    """The record of the step after the set-up, by real processes on loopback, and the notes of their traces.

    ``AgentError`` for a rank that died, after its traceback was said.
    """
    ranks = settings.ranks or DEFAULT_RANKS
    script = script_of(settings, ranks, settings.gpus_per_server)
    script = replace(script, rank=replace(script.rank, steps=settings.setup_steps + 1, compute="real"))
    traces = real_traces(script, say)
    notes = dict.fromkeys(note for trace in traces for note in trace.notes)
    return record(settings, traces, settings.setup_steps), tuple(notes)


def real_traces(script: UserScript, say: Callable[[str], None]) -> list[RankTrace]:
    """The traces of all ranks of ``script`` as processes on loopback; ``AgentError`` as from ``recorded``."""
    ranks = script.rank.world
    with temporary_folder() as private, script.start() as processes:
        folder = private / "record"
        team = ScriptTeam(processes, script, folder, say)
        try:
            team.launch([RankPlace()] * ranks, "127.0.0.1", _free_port())
            team.wait()
        finally:
            team.stop()
        return [read_trace(trace_of(folder, rank)) for rank in range(ranks)]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def record(settings: TorchSettings, traces: Sequence[RankTrace], step: int, times: float = 1.0) -> Record:
    """The record of a step of all ranks, with ``times`` the computes that they measured, for the fabric of the run."""
    made = record_of(
        {trace.rank: trace for trace in traces},
        Path(settings.script).stem or "script",
        step,
        seconds=lambda work: work.seconds * times,
        front_end_below=settings.front_end_below,
        gpus_per_server=settings.gpus_per_server,
    )
    return replace(made, port_gbps=settings.fabric.rate_gbps or PORT_GBPS, scale_up_gbps=SCALE_UP_GBPS)


def last_step(traces: Sequence[RankTrace]) -> int:
    return min(max((end.step for end in trace.events if isinstance(end, StepEnd)), default=-1) for trace in traces)


def workload_of(record: Record, settings: TorchSettings) -> Workload:
    """The recorded step on a fabric of its own, with the computes of a run; ``ConfigError`` for other ``ranks``."""
    if settings.ranks not in (None, record.ranks):
        raise ConfigError(f"must be {record.ranks}, as in the record, or left out", key="ranks")
    workload, given = recorded_workload(record), settings.compute.partition("given:")[2]
    other = read_record(Path(given)).program() if given else None
    return replace(
        workload,
        program=with_computes(workload.program, settings.compute, other),
        port_gbps=settings.fabric.rate_gbps or PORT_GBPS,
        front_end_gbps=settings.front_end_gbps,
    )


def factor_of(compute: str) -> float:
    """How many times longer a compute is than it takes the processor."""
    return float(compute.partition(":")[2]) if compute.startswith("scaled:") else 1.0


def with_computes(program: Program, compute: str, given: Program | None) -> Program:
    """``program`` with the computes of a run: those of ``given``, which asks for the same, or scaled ones."""
    factor, source = factor_of(compute), given or program
    if [_asked(ops) for ops in source.operations] != [_asked(ops) for ops in program.operations]:
        raise ConfigError("is of another step: its ranks do other operations", key="compute")
    operations = []
    for ops, others in zip(program.operations, source.operations, strict=True):
        seconds = chain(*map(_shared_out, _computes(ops), _computes(others)))
        changed = (replace(op, seconds=next(seconds) * factor) if isinstance(op, Compute) else op for op in ops)
        operations.append(tuple(changed))
    return replace(program, operations=tuple(operations))


def _asked(operations: Sequence[Operation]) -> list[tuple[str, int]]:
    return [(op.type, op.bytes) for op in operations if not isinstance(op, Compute)]


def _computes(operations: Sequence[Operation]) -> list[list[float]]:
    """Seconds of the computes before each communication, and of those at the end."""
    seconds: list[list[float]] = [[]]
    for op in operations:
        if isinstance(op, Compute):
            seconds[-1].append(op.seconds)
        else:
            seconds.append([])
    return seconds


def _shared_out(own: Sequence[float], others: Sequence[float]) -> list[float]:
    """``others`` in as many parts as ``own``: what is computed before a wait is a part only where it took time."""
    joined = max(0, len(others) - len(own)) + 1
    return [0.0] * (len(own) - len(others)) + [sum(others[:joined]), *others[joined:]]


def calls_of(program: Program) -> tuple[tuple[RecordedCall, ...], ...]:
    """The calls of each rank, with the computes before them, as a script compares and paces its own with them."""
    return tuple(tuple(_calls(program, ops)) for ops in program.operations)


def _calls(program: Program, operations: Sequence[Operation]) -> Iterator[RecordedCall]:
    seconds = 0.0
    for op in operations:
        if isinstance(op, Compute):
            seconds += op.seconds_in(0)
            continue
        group = program.groups[op.group]
        kind = op.kind if isinstance(op, Collective) else op.type
        yield RecordedCall(kind, group.members, op.bytes, group.domain != "front-end", seconds)
        seconds = 0.0
    yield RecordedCall("end", (), 0, False, seconds)
