"""Report of an all-to-all experiment: tables and findings; figures and trace drawn from the results folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from experiments.all_to_all.figures import EXPERIMENT, STUDY_OF, all_to_all_figures
from experiments.all_to_all.series import study_rows
from experiments.rails.report import Column, plain_table, verdict_lines
from measure.figures.curves import size_in_words
from measure.figures.style import png
from measure.metrics.fidelity import NOT_FAITHFUL
from measure.results.manifest import scale_of
from measure.results.results import FIGURES, TRACE, Results
from measure.results.row import Row
from measure.results.trace import trace_json

ALL_TO_ALL = EXPERIMENT
"""The experiment whose results folders this module can draw."""
_WIDTH = 165
_COLUMNS: tuple[Column, ...] = (
    ("policy", "left"),
    ("fabric", "left"),
    ("n", "right"),
    ("bytes\n/ pair", "right"),
    ("T\nms", "right"),
    ("slot\nms", "right"),
    ("time\ns", "right"),
    ("model\ns", "right"),
    ("formula\ns", "right"),
    ("time /\nformula", "right"),
    ("slots", "right"),
    ("duty\n%", "right"),
    ("ideal\n%", "right"),
    ("goodput\nGb/s", "right"),
    ("wrong\nhost", "right"),
    ("lost\npackets", "right"),
    ("sent\nagain", "right"),
    ("faithful", "left"),
)


def print_all_to_all(rows: Sequence[Row], console: Console) -> None:
    """Print a table for each study, findings on time and delivery, and the verdict; for predictions the tables only."""
    if not console.is_terminal:
        console = Console(file=console.file, width=_WIDTH, no_color=True)
    measured = [row for row in rows if row.get("time_s") is not None]
    for study in dict.fromkeys(row.get("study", "") for row in rows):
        title = f"study: {study}" if study else "all-to-all"
        console.print(Text(title if measured else f"{title} (MODEL ONLY, nothing was measured)", style="bold"))
        console.print(plain_table(_COLUMNS, (_cells(row) for row in rows if row.get("study", "") == study)))
    if measured:
        for line in (*_found(measured), *_delivered(measured), *verdict_lines(measured, _point_name)):
            console.print(line)


def redraw_all_to_all(folder: Path) -> list[Path]:
    """Draw all figures and the trace of a results folder again; returns the paths written.

    ``ConfigError`` if ``folder`` is not a results folder.
    """
    results = Results.open(folder)
    scale, rows = scale_of(results.manifest()), results.rows()
    written = [results.write(TRACE, trace_json(results.events(), scale))]
    for name, figure in all_to_all_figures(rows).items():
        faithful = all(row["faithful"] for row in study_rows(rows, STUDY_OF[name]))
        written.append(results.write(f"{FIGURES}/{name}.png", png(figure, scale, faithful=faithful)))
    results.hand_over()
    return written


def _cells(row: Row) -> list[str | Text]:
    faithful = row.get("faithful")
    time, formula = row.get("time_s"), row.get("formula_s")
    return [
        row["policy"],
        row["fabric"],
        str(row["n"]),
        size_in_words(row["bytes_per_pair"]),
        _number(row.get("reconfiguration_delay_ms"), "g"),
        _number(row.get("slot_ms"), "g"),
        _number(time, ".4f"),
        _number(row.get("predicted_time_s"), ".4f"),
        _number(formula, ".4f"),
        _number(time / formula if time and formula else None, ".3f"),
        _number(row.get("slots"), ".3g"),
        _number(row.get("duty_cycle"), ".1%").rstrip("%"),
        _number(row.get("ideal_duty_cycle"), ".1%").rstrip("%"),
        _number(row.get("goodput_gbps"), ".4g"),
        _count(row.get("misdelivered")),
        _number(row.get("lost_packets"), "d"),
        _number(row.get("retransmissions"), "d"),
        "-" if faithful is None else Text("yes", "green") if faithful else Text(NOT_FAITHFUL, "bold red"),
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _count(misdelivered: int | None) -> str | Text:
    return Text(str(misdelivered), "bold red") if misdelivered else _number(misdelivered, "d")


def _point_name(row: Row) -> str:
    """The name of a row's point in findings and verdict."""
    slot = f", slots of {row['slot_ms']:g} ms" if row.get("slot_ms") else ""
    size = size_in_words(row["bytes_per_pair"])
    return f"{row['policy']}, {row['n']} ranks, {size} per pair, {row['reconfiguration_delay_ms']:g} ms{slot}"


def _found(rows: Sequence[Row]) -> Iterator[Text]:
    """A line for each policy with the range of its time over formula."""
    for policy in dict.fromkeys(row["policy"] for row in rows):
        ratios = [row["time_s"] / row["formula_s"] for row in rows if row["policy"] == policy and row.get("formula_s")]
        if ratios:
            span = " to ".join(dict.fromkeys(f"{ratio:.3f}" for ratio in (min(ratios), max(ratios))))
            yield Text(f"{policy}: time / formula {span} ({len(ratios)} {'point' if len(ratios) == 1 else 'points'}).")


def _delivered(rows: Iterable[Row]) -> Iterator[Text]:
    """Lines on misdelivered packets, and on bytes sent and received."""
    counted = [row for row in rows if row.get("misdelivered") is not None]
    wrong = sum(row["misdelivered"] for row in counted)
    if wrong:
        where = "; ".join(f"{_point_name(row)}: {row['misdelivered']}" for row in counted if row["misdelivered"])
        yield Text(f"{wrong} packets arrived at a host other than their destination ({where}).", "bold red")
    elif counted:
        yield Text(f"No packet arrived at a host other than its destination ({len(counted)} points counted).", "green")
    both = [row for row in rows if row.get("payload_sent_bytes") is not None]
    unequal = [row for row in both if row["payload_sent_bytes"] != row["payload_received_bytes"]]
    for row in unequal:
        sent, received = row["payload_sent_bytes"], row["payload_received_bytes"]
        yield Text(f"{_point_name(row)}: ranks sent {sent:.12g} bytes and received {received:.12g}.", "bold red")
    if both and not unequal:
        yield Text("At every point the ranks received as many bytes as they sent.", "green")
