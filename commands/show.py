"""``railyard show``: contents of workload files, their traffic and time, and schedules."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

from rich.console import Console

from experiments.parser import Parser
from experiments.progress import wrapped
from experiments.report import Column, Table, as_rich, console_for_tables, left_out_lines
from measure.metrics.critical import bound_s, rounds_after_straggler
from railyard.errors import ConfigError
from railyard.size import in_words, parse_size
from workloads.catalog import DEFAULT_PORT_GBPS
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.inspection import (
    Contents,
    inspect_file,
    rounds_of,
    schedule_json,
    sent_by_position,
    work_of,
)
from workloads.schedule import CollectiveKind, Schedule

DESCRIPTION = """\
Show the contents of a workload file with its traffic and predicted time, or a
collective round by round.

railyard show trace/           # Chakra traces: a folder, or one file of it
railyard show gpt175b.txt --ranks 16 --compute-unit ns    # a layer file
railyard show ring.xml --size 1M --json    # an MSCCL algorithm
railyard show smoke            # a workload of the catalog, or a YAML file
railyard show --algorithm stragglar --ranks 8 --straggler 2
railyard show --algorithm ring --op all_gather --ranks 8 --xml

Layer files are those of ASTRA-sim and AICB. Nothing is started and root is not
needed; times are predictions of the model."""
MOST_OPERATIONS, MOST_WORK = 5_000, 20_000
"""Largest program that is predicted without --predict, which takes about a second: operations of all ranks, and
operations with the transfers of collectives."""
MOST_ROWS = 16
DEFAULT_RANKS = 8
STEPS = 2


def main(arguments: Sequence[str]) -> int:
    """Show the files or the collective of the command line; returns the exit status."""
    options = parser().read(arguments)
    try:
        return _show(options)
    except ConfigError as error:
        if getattr(options, error.key or "", None) is None:
            raise
        option = f"--{str(error.key).replace('_', '-')}"
        raise ConfigError(error.message, key=option, source=error.source) from error


def _show(options: argparse.Namespace) -> int:
    if bool(options.files) == (options.algorithm is not None):
        raise ConfigError(f"name a file, or a collective with --algorithm ({', '.join(ALGORITHMS)})")
    size = None if options.size is None else parse_size(options.size, key="size")
    if options.algorithm is not None:
        show_schedule(options, size or parse_size("1M"))
        return 0
    if options.xml:
        raise ConfigError("needs --algorithm; a file is shown as text or, with --json, as JSON", key="xml")
    console = _console(wide=options.wide)
    found: list[dict[str, Any]] = []
    for name in options.files:
        contents = inspect_file(
            name,
            compute_unit=options.compute_unit,
            ranks=options.ranks,
            size=size,
            model_parallel=options.model_parallel,
            gpus_per_server=options.gpus_per_server,
        )
        prediction, note = predict_step(contents, options)
        if options.json:
            found.append({**contents.to_json(), "prediction": prediction})
            found[-1]["notes"] += [note] if note else []
        else:
            print_contents(contents, prediction, note, console)
    if options.json:
        print(json.dumps(found[0] if len(found) == 1 else found))
    return 0


def parser() -> Parser:
    made = Parser(prog="railyard show", description=DESCRIPTION)
    add = made.add_argument
    add("files", nargs="*", metavar="FILE", help="workload file, folder of traces, or workload of the catalog")
    add(
        "--algorithm",
        metavar="NAME",
        help=f"collective algorithm to show instead of a file: {', '.join(ALGORITHMS)}",
    )
    add(
        "--op",
        default="all_reduce",
        choices=get_args(CollectiveKind),
        metavar="KIND",
        help=f"collective of --algorithm: {', '.join(get_args(CollectiveKind))} (default all_reduce)",
    )
    add(
        "--ranks",
        type=int,
        metavar="N",
        help=f"number of ranks of --algorithm (default {DEFAULT_RANKS}), or of a layer file",
    )
    add("--straggler", type=int, metavar="RANK", help="late rank of a straggler-aware algorithm (default the last)")
    add("--gpus-per-server", type=int, metavar="N", help="ranks per server (default 1)")
    add("--size", metavar="BYTES", help="buffer size of --algorithm or an MSCCL file: 4096, 4K, 1M (default 1M)")
    add(
        "--compute-unit",
        metavar="UNIT",
        help="unit of the compute times in a file: ns, us, ms, s, cycles:GHZ, tflops:RATE, or ignore",
    )
    add(
        "--model-parallel",
        type=int,
        metavar="N",
        help="size of a model-parallel group, for a layer file that does not give it",
    )
    add(
        "--port-gbps",
        type=float,
        metavar="GBPS",
        help="rate of a port, in Gb/s (default that of the workload, else 12.5); ranks of a file have two ports, of "
        "--algorithm one",
    )
    add("--rate", metavar="1/250", help="scale of a run: emulated / real link rate (default auto)")
    add("--time", type=float, metavar="X", help="scale of a run: emulated seconds per real second (default 1)")
    add(
        "--predict",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="prediction of the step time by the model (default only for small files)",
    )
    add("--wide", action="store_true", help="all columns of the tables")
    add("--json", action="store_true", help="output as JSON, for other programs")
    add("--xml", action="store_true", help="output of --algorithm as MSCCL XML")
    return made


def _console(*, wide: bool) -> Console:
    return console_for_tables(wide=wide) if wide or sys.stdout.isatty() else Console(width=120)


# -- files -----------------------------------------------------------------------------------------


def predict_step(contents: Contents, options: argparse.Namespace) -> tuple[dict[str, Any] | None, str]:
    """The predicted step of a run, and a note on why there is no prediction or no run.

    The prediction is None without a workload, with --no-predict, and for a large program without --predict.
    """
    workload = contents.workload
    if options.predict is False or workload is None:
        return None, ""
    large = sum(map(len, workload.program.operations)) > MOST_OPERATIONS or work_of(workload.program) > MOST_WORK
    if options.predict is None and large:
        return None, "the program is large: the time of a run is predicted only with --predict."
    from experiments.rails.job import job_point, model_scale, resolve_scale
    from experiments.rails.settings import make_settings
    from measure.live.calibration import this_machine

    scale_keys = {key: getattr(options, key) for key in ("rate", "time") if getattr(options, key) is not None}
    fabric = {} if options.port_gbps is None else {"rate_gbps": options.port_gbps}
    values = {"modes": ["native"], "delays_ms": [0.0], "scale": scale_keys, "fabric": fabric, "steps": STEPS}
    settings = make_settings(values)
    note, chosen = "", None
    try:
        if workload.record is not None and workload.record.ranks > workload.program.ranks:
            raise ConfigError(f"no machine runs {workload.record.ranks} ranks")
        chosen = resolve_scale(settings, workload, this_machine())
    except ConfigError as error:
        note = f"a run would be refused: {error}."
    scale = chosen or model_scale(settings, workload)
    job = job_point(settings, workload, "native", 0.0, scale)
    found = job.prediction(job.fabric.plan(), scale)
    return {
        "step_s": found.step_time_s,
        "wall_clock_s": chosen.emulated_s(found.step_time_s) if chosen else None,
        "rate": chosen.rate if chosen else None,
        "time": chosen.time if chosen else None,
        "port_gbps": options.port_gbps or workload.port_gbps,
        "fabric": "electrical",
    }, note


def print_contents(contents: Contents, prediction: dict[str, Any] | None, note: str, console: Console) -> None:
    """Print the contents of a file: facts, a table of collectives, a table of ranks, and notes."""
    console.print(f"[bold]{contents.file}[/bold]: {contents.format}", highlight=False, soft_wrap=True)
    for line in _facts(contents, prediction):
        _say(f"  {line}", console)
    if contents.collectives:
        _print(_collective_table(contents), console)
    if contents.traffic:
        _print(_rank_table(contents), console)
    for sentence in (*contents.notes, *([note] if note else [])):
        _say(f"  note: {sentence}", console)


def _say(text: str, console: Console) -> None:
    """Print one line of text; on a terminal, a line that is too long goes on after a whole word."""
    shown = wrapped(text, console.width) if console.is_terminal else text
    console.print(shown, highlight=False, markup=False, soft_wrap=True)


def _facts(contents: Contents, prediction: dict[str, Any] | None) -> list[str]:
    lines = [f"ranks: {'not said' if contents.ranks is None else contents.ranks}"]
    if contents.layers is not None:
        lines.append(f"layers: {contents.layers}")
    if contents.operations:
        lines.append("operations: " + ", ".join(f"{count} {name}" for name, count in contents.operations.items()))
    if contents.compute_s:
        lines.append(f"compute: {_span(contents.compute_s, ' s')} per rank and step")
    if contents.bytes_sent:
        lines.append(f"sent: {_span(contents.bytes_sent, ' bytes')} per rank and step")
        lines.append(f"received: {_span(contents.bytes_received, ' bytes')} per rank and step")
    if prediction is not None:
        ports = f"2 ports of {prediction['port_gbps']:g} Gb/s a rank"
        lines.append(f"step: {prediction['step_s']:.6g} s (MODEL) on electrical rails, {ports}")
        if prediction["rate"] is not None:
            scale = f"at rate 1/{1 / prediction['rate']:.4g} and time {prediction['time']:g}"
            lines.append(f"run: {prediction['wall_clock_s']:.6g} s of wall-clock time a step, {scale}")
    return lines


def _span(values: Sequence[float], unit: str) -> str:
    least, most = min(values), max(values)
    shown = [f"{value:,}" if isinstance(value, int) else f"{value:.6g}" for value in (least, most)]
    return f"{shown[0]}{unit}" if least == most else f"{shown[0]} to {shown[1]}{unit}"


def _print(table: Table, console: Console) -> None:
    """Print a table, with its title as a last line about rows that were left out."""
    console.print(as_rich(table, console.width))
    for line in (*filter(None, [table.title]), *left_out_lines([table], console.width)):
        console.print(f"  {line}", highlight=False)


def _collective_table(contents: Contents) -> Table:
    rows = sorted(
        map(asdict, contents.collectives), key=lambda one: -one["bytes"] * one["count"] * max(one["members"], 1)
    )
    columns = (
        Column("collective", "kind", left=True),
        Column("bytes", "bytes", ","),
        Column("members", lambda row: row["members"] or "?"),
        Column("count", "count", "d"),
    )
    more = len(rows) - MOST_ROWS
    return Table(f"and {more} more kinds and sizes" if more > 0 else "", columns, rows[:MOST_ROWS])


def _rank_table(contents: Contents) -> Table:
    to: dict[int, list[tuple[int, int]]] = {}
    for src, dst, size in contents.traffic:
        to.setdefault(src, []).append((dst, size))
    rows = []
    for rank in range(min(contents.ranks or 0, MOST_ROWS)):
        peers = sorted(to.get(rank, []), key=lambda peer: -peer[1])
        shown = ", ".join(f"{dst}: {size:,}" for dst, size in peers[:4]) + (", ..." if len(peers) > 4 else "")
        rows.append({"rank": rank, "compute_s": contents.compute_s[rank], "sent": contents.bytes_sent[rank],
                     "received": contents.bytes_received[rank], "to": shown})  # fmt: skip
    columns = (
        Column("rank", "rank", "d"),
        Column("compute s", "compute_s", ".6g"),
        Column("sent", "sent", ","),
        Column("received", "received", ","),
        Column("sends to", "to", left=True, wide=True),
    )
    return Table(f"and {contents.ranks} ranks in all" if (contents.ranks or 0) > MOST_ROWS else "", columns, rows)


# -- collectives -----------------------------------------------------------------------------------


def show_schedule(options: argparse.Namespace, size: int) -> None:
    """Show the schedule of one collective as JSON, as MSCCL XML, or as a table."""
    found = schedule(
        options.op,
        DEFAULT_RANKS if options.ranks is None else options.ranks,
        options.algorithm,
        straggler=options.straggler,
        gpus_per_server=1 if options.gpus_per_server is None else options.gpus_per_server,
    )
    if options.xml:
        from workloads.formats.msccl_writer import write_msccl

        print(write_msccl(found).rstrip("\n"))
    elif options.json:
        print(json.dumps(schedule_json(found)))
    else:
        port_gbps = DEFAULT_PORT_GBPS if options.port_gbps is None else options.port_gbps
        print_schedule(found, size, port_gbps, _console(wide=options.wide))


def print_schedule(found: Schedule, size: int, port_gbps: float, console: Console) -> None:
    if not port_gbps > 0:
        raise ConfigError(f"must be above 0, not {port_gbps:g}", key="port_gbps")
    bound = bound_s(found, size, 0.0, port_gbps * 1e9 / 8)
    late = bound_s(rounds_after_straggler(found), size, 0.0, port_gbps * 1e9 / 8)
    sent, received = sent_by_position(found, size)
    console.print(
        f"[bold]{found.algorithm}[/bold] {found.kind} over {found.n} ranks (proved)", highlight=False, soft_wrap=True
    )
    ports = "at most one send and one receive per rank and round" if found.one_port else "several sends at a time"
    properties = [ports]
    if found.lockstep:
        properties.append("a rank starts a round when the rounds before are done")
    lines = [
        f"rounds: {found.rounds}" + (f", the first {found.first_phase} without rank {found.straggler}"
                                     if found.straggler is not None else ""),
        f"chunks: {found.chunks}; transfers: {len(found.transfers)}; {'; '.join(properties)}",
        f"for {in_words(size)}: each rank sends {_span(sent, ' bytes')}, receives {_span(received, ' bytes')}",
        f"bound: {bound:.6g} s for {in_words(size)} on one port of {port_gbps:g} Gb/s a rank, without latency"
        + (f"; {late:.6g} s of it after the straggler has come" if found.straggler is not None else ""),
    ]  # fmt: skip
    for line in lines:
        _say(f"  {line}", console)
    console.print("[bold]round  from>to: chunk (+: added, =: stored)[/bold]")
    for number, transfers in enumerate(rounds_of(found)):
        cells = [f"{src}>{dst}: {'+' if op == 'reduce' else '='}{chunk}" for src, dst, chunk, op, *_ in transfers]
        more = len(cells) - 4 * MOST_ROWS
        shown = ", ".join(cells[: 4 * MOST_ROWS]) + (f", and {more} more" if more > 0 else "")
        console.print(f"{number:>5}  {shown}", highlight=False, markup=False)
