"""``railyard record``: one training step of a user's PyTorch script as a workload, for any world, on one CPU."""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.parser import Parser
from experiments.progress import wrapped
from experiments.report import Column, Table, as_rich, console_for_tables
from experiments.script import UserScript, any_rank
from experiments.torch.job import last_step, real_traces
from railyard.errors import ConfigError
from railyard.ownership import make_folder
from railyard.size import parse_size
from workloads.formats.chakra_writer import write_traces
from workloads.program import MOST_OPERATIONS
from workloads.pytorch.build import record_of
from workloads.pytorch.experts import read_experts
from workloads.pytorch.fake_ranks import MOST_WORLD, record_shapes
from workloads.pytorch.record import Record
from workloads.pytorch.record_file import write_record
from workloads.pytorch.trace import RankTrace, Work
from workloads.training.ranks import some_ranks

DESCRIPTION = """\
Record one training step of a PyTorch script, as torchrun would start it, as a
workload: what every rank communicates, and what it computes in between.

railyard record --world 1024 train.py --layers 32

The script runs for one rank of each kind, on shapes alone: no GPU, no other
process, no root. With --real all ranks run, as processes with real tensors.
Options of the command come before SCRIPT, those of the script after it."""
TFLOPS, MEMORY_GBYTES = 400.0, 3000.0
"""Of a GPU of 2023 at 40 % of its peak, and its memory."""
REAL_STEPS = 3
MOST_ROWS = 40


def main(arguments: Sequence[str]) -> int:
    """Record the script of the command line, write its workload, and print what it has; returns the exit status."""
    options = _parser().read(arguments)
    _check(options)
    name = options.name or Path(options.script).stem
    below = parse_size(options.front_end_below, "--front-end-below")
    out = options.out or Path(f"{name}.yaml")
    traces = _traces(options)
    step = last_step(list(traces.values()))
    seconds = _seconds(options, traces.values(), step)
    record = record_of(
        traces, name, step, seconds=seconds, front_end_below=below, gpus_per_server=options.gpus_per_server
    )
    write_record(record, out, links=True)
    _print(record, traces, step, _words(options), real=options.real)
    if options.chakra is not None:
        print(f"\nChakra traces of {_write_chakra(record, options.chakra)} in {options.chakra}.")
    print(f"\nWritten: {out}. Next:")
    print(f"  railyard predict rails --workload {out}")
    return 0


def _traces(options: argparse.Namespace) -> dict[int, RankTrace]:
    """The traces of all ranks as processes, or of those that stand for all on shapes alone."""
    if options.real:
        rank = any_rank(options.world, options.gpus_per_server, steps=options.steps or REAL_STEPS)
        script = UserScript(options.script, tuple(options.arguments), rank, strict=options.strict)
        return dict(enumerate(real_traces(script, lambda text: print(text, file=sys.stderr))))
    return record_shapes(
        options.script,
        options.arguments,
        options.world,
        steps=options.steps or 0,
        experts=None if options.experts is None else read_experts(options.experts),
        strict=options.strict,
        gpus_per_server=options.gpus_per_server,
    )


def _write_chakra(record: Record, folder: Path) -> str:
    """Write Chakra traces, of a rank of each class alone where those of all would be too many; says of which."""
    whole = record.operations <= MOST_OPERATIONS
    classes = tuple(ranks if whole else replace(ranks, ranks=ranks.ranks[:1]) for ranks in record.classes)
    written = sorted(rank for ranks in classes for rank in ranks.ranks)
    program = replace(record, classes=classes).program()
    make_folder(folder)
    write_traces(program, folder, written)
    return "all ranks" if whole else f"ranks {some_ranks(written)} (one of each class)"


def _parser() -> Parser:
    made = Parser(prog="railyard record", description=DESCRIPTION)
    add = made.add_argument
    add("--world", type=int, metavar="N", help="ranks of the job; needed")
    add("--real", action="store_true", help="run all ranks as processes with real tensors, on this machine")
    add("--steps", type=int, metavar="N", help="steps to run; the last is kept (default as many as set-up needs)")
    add("--tflops", type=float, metavar="X", help=f"rate of a rank in TFLOP/s (default {TFLOPS:g})")
    add("--memory-gbytes", type=float, metavar="X", help=f"rate of its memory in GB/s (default {MEMORY_GBYTES:g})")
    add(
        "--seconds", type=float, metavar="S", help="what the busiest rank computes in a step, shared out by these rates"
    )
    add("--factor", type=float, metavar="F", help="with --real: computing lasts F times what it took (default 1)")
    add("--experts", metavar="HOW", help="tokens of experts: uniform, zipf:S, or a file of weights, a line a rank")
    add("--gpus-per-server", type=int, default=1, metavar="G", help="ranks of a server (default 1)")
    add("--front-end-below", default="64K", metavar="BYTES", help="smaller calls take the front-end network (64K)")
    add("--name", metavar="NAME", help="name of the workload (default that of the script)")
    add("--out", type=Path, metavar="FILE.yaml", help="the workload (default NAME.yaml)")
    add("--chakra", type=Path, metavar="FOLDER", help="the step as Chakra traces, too")
    add("--strict", action="store_true", help="refuse a script that asks for NCCL")
    add("script", metavar="SCRIPT", help="the script that torchrun would run")
    add("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return made


def _check(options: argparse.Namespace) -> None:
    """Refuse options that are out of range, or that say nothing together."""
    if "/" in (options.name or "") or len(options.name or "") > 100:
        raise ConfigError("must be at most 100 characters without a /, as files have it", key="--name")
    if options.world is None:
        raise ConfigError("is needed before SCRIPT: the number of ranks, as in --world 4", key="--world")
    for key, most in (("world", MOST_WORLD), ("steps", 1000), ("gpus_per_server", options.world)):
        value = getattr(options, key)
        if value is not None and not 1 <= value <= most:
            raise ConfigError(f"must be from 1 to {most}, not {value}", key=f"--{key.replace('_', '-')}")
    if options.world % options.gpus_per_server:
        raise ConfigError(f"must divide --world ({options.world})", key="--gpus-per-server")
    for key in ("tflops", "memory_gbytes", "seconds", "factor"):
        value = getattr(options, key)
        if value is None:
            continue
        option = f"--{key.replace('_', '-')}"
        if not 0 < value < math.inf:
            raise ConfigError(f"must be above 0, not {value:g}", key=option)
        if options.real != (key == "factor"):
            raise ConfigError(
                "cannot be given with --real, which measures what ranks compute; give --factor"
                if options.real
                else "needs --real, which measures what ranks compute; give --tflops or --seconds",
                key=option,
            )
    if options.real and options.experts is not None:
        raise ConfigError("is for shapes alone; with --real the script routes its tokens itself", key="--experts")


def _seconds(options: argparse.Namespace, traces: Iterable[RankTrace], step: int) -> Callable[[Work], float]:
    """How long a rank computes for what it does between two events; ``--seconds`` is that of the busiest in a step."""
    if options.real:
        return lambda work: work.seconds * (options.factor or 1.0)
    flops, memory = (options.tflops or TFLOPS) * 1e12, (options.memory_gbytes or MEMORY_GBYTES) * 1e9

    def by_rates(work: Work) -> float:
        return max(work.flops / flops, work.moved_bytes / memory)

    if options.seconds is None:
        return by_rates
    busiest_s = max(sum(by_rates(event.work) for event in trace.events if event.step == step) for trace in traces)
    return lambda work: by_rates(work) * options.seconds / (busiest_s or 1.0)


def _words(options: argparse.Namespace) -> str:
    if options.real:
        return f"processor time of this machine, times {options.factor or 1:g} (--factor)"
    rates = f"{options.tflops or TFLOPS:g} TFLOP/s and {options.memory_gbytes or MEMORY_GBYTES:g} GB/s of memory"
    if options.seconds is not None:
        return f"{options.seconds:g} s of the busiest rank (--seconds), shared out by {rates}"
    return f"a roofline of {rates} (--tflops, --memory-gbytes)"


# ---- the tables ------------------------------------------------------------------------------------------------------


def _print(record: Record, traces: Mapping[int, RankTrace], step: int, words: str, *, real: bool) -> None:
    console = console_for_tables()
    how = f"{len(traces)} of them run {'as processes' if real else 'on shapes alone'}"
    console.print(f"{record.name}: step {step} of {record.ranks} ranks, {how}", style="bold", highlight=False)
    for table in (_classes(record, traces, step), _calls(record)):
        console.print(as_rich(table, console.width))
        if table.title:
            console.print(table.title, highlight=False)
    for sentence in (f"Computing: {words}.", *_notes(traces)):
        console.print(wrapped(sentence, console.width), highlight=False, markup=False, soft_wrap=True)


def _classes(record: Record, traces: Mapping[int, RankTrace], step: int) -> Table:
    rows = [
        {
            "ranks": _shown(ranks.ranks),
            "calls": len(ranks.calls),
            "gb": sum(call.bytes for call in ranks.calls) / 1e9,
            "compute_s": ranks.compute_s,
            "tflop": next((_flops(traces[rank], step) / 1e12 for rank in ranks.ranks if rank in traces), 0.0) or None,
        }
        for ranks in record.classes
    ]
    columns = (
        Column("equal ranks", "ranks", left=True),
        Column("calls", "calls", ","),
        Column("GB", "gb", ",.4g"),
        Column("compute s", "compute_s", ",.4g"),
        Column("TFLOP", "tflop", ",.4g"),
    )
    return _table(columns, rows)


def _calls(record: Record) -> Table:
    """Calls of a rank by group and kind; ranks with the same sums share their lines."""
    sharing: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for ranks in record.classes:
        sums: dict[tuple[str, int, str], list[int]] = defaultdict(lambda: [0, 0])
        for call in ranks.calls:
            role = record.roles[call.role]
            group = call.role.partition(".")[0] if role.dimension == "pp" else call.role  # all pairs together
            sums[group, len(role.groups[0]), call.kind][0] += 1
            sums[group, len(role.groups[0]), call.kind][1] += call.bytes
        sharing[tuple(sorted((*key, *value) for key, value in sums.items()))] += ranks.ranks
    rows = [
        {"ranks": "" if number else _shown(sorted(ranks)), "group": group, "of": members, "kind": kind,
         "calls": calls, "bytes": size}
        for sums, ranks in sharing.items()
        for number, (group, members, kind, calls, size) in enumerate(sums)
    ]  # fmt: skip
    columns = (
        Column("ranks", "ranks", left=True),
        Column("group", "group", left=True),
        Column("of", "of"),
        Column("kind", "kind", left=True),
        Column("calls", "calls", ","),
        Column("bytes", "bytes", ","),
    )
    return _table(columns, rows)


def _table(columns: Sequence[Column], rows: list[dict[str, Any]]) -> Table:
    return Table(f"and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else "", columns, rows[:MOST_ROWS])


def _shown(ranks: Sequence[int]) -> str:
    first, last = ranks[0], ranks[-1]
    if len(ranks) < 3:
        return ", ".join(map(str, ranks))
    return f"{first}-{last}" if last - first == len(ranks) - 1 else f"{first}, {ranks[1]}, ... {last} ({len(ranks)})"


def _flops(trace: RankTrace, step: int) -> float:
    return sum(event.work.flops for event in trace.events if event.step == step)


def _notes(traces: Mapping[int, RankTrace]) -> Iterator[str]:
    """The notes of all ranks, one that several have only once."""
    for note in dict.fromkeys(note for trace in traces.values() for note in trace.notes):
        yield f"Note: {note}."
