"""Report of a failover or server-fabric run: tables on the terminal, with the papers' values beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from experiments.racks.row import PAPER_CIRCUITS_S, PAPER_SLOWDOWN, PHOTONIC
from experiments.rails.report import Column, plain_table, verdict_lines
from experiments.server_fabric.row import MEASURES, gain
from measure.metrics.fidelity import NOT_FAITHFUL
from measure.results.row import Row

Cell = str | Text
_WIDTH = 150
_PARTS = ("detect", "decide", "rewire", "launch", "checkpoint", "load", "library", "data", "start", "first step")
_BEFORE_CIRCUITS = ("detect", "decide", "rewire")
_STEP_COLUMNS: tuple[Column, ...] = (
    ("fabric", "left"),
    ("tenant", "left"),
    ("step before\ns", "right"),
    ("model\ns", "right"),
    ("step after\ns", "right"),
    ("model\ns", "right"),
    ("after /\nbefore", "right"),
    ("after /\nphotonic", "right"),
    ("paper", "right"),
    ("busbw before\nGB/s", "right"),
    ("after\nGB/s", "right"),
    ("lost\nsteps", "right"),
    ("checksum\nok", "left"),
    ("reserve\nchips", "right"),
    ("faithful", "left"),
)
_PREDICTED_COLUMNS: tuple[Column, ...] = (
    ("fabric", "left"),
    ("tenant", "left"),
    ("step before\ns", "right"),
    ("step after\ns", "right"),
    ("after /\nphotonic", "right"),
    ("paper", "right"),
    ("reserve\nchips", "right"),
)
_SHAPE_COLUMNS: tuple[Column, ...] = (
    ("measured", "left"),
    ("slice", "left"),
    ("unit", "left"),
    ("electrical", "right"),
    ("model", "right"),
    ("photonic", "right"),
    ("model", "right"),
    ("ratio", "right"),
    ("model\nratio", "right"),
    ("paper", "right"),
    ("faithful", "left"),
)


def print_recoveries(rows: Sequence[Row], console: Console) -> None:
    """Print the parts of each recovery, step times before and after of all tenants, and the verdict."""
    console = _wide(console)
    faults = [row for row in rows if row["event"] != "neighbour"]
    console.print(Text("Recovery from the chip's death to the end of the first step after it (s)", style="bold"))
    console.print(plain_table(_part_columns(faults), _part_lines(faults)))
    for line in _circuit_lines(faults):
        console.print(line)
    console.print(Text("\nStep times before and after the fault", style="bold"))
    console.print(plain_table(_STEP_COLUMNS, (_step_cells(row) for row in rows)))
    for line in _neighbour_lines(rows):
        console.print(line)
    judged = [row for row in rows if row.get("checks") is not None]
    for text in verdict_lines(judged, _point_name):
        console.print(text)


def print_predictions(rows: Sequence[Row], console: Console) -> None:
    """Print the model's parts of each recovery and step times (rows of ``experiments.racks.row.prediction_row``)."""
    console = _wide(console)
    console.print(
        Text("MODEL ONLY: recovery from the chip's death to the end of the first step after it (s)", style="bold")
    )
    console.print(plain_table(_part_columns(rows), _part_lines(rows)))
    for row in rows:
        low, high = row.get("predicted_outage_low_s"), row.get("predicted_outage_high_s")
        if low is not None and high is not None:
            when = "depending on when the chip dies between two heartbeats"
            console.print(Text(f"{row['fabric']}: outage {low:.2f} to {high:.2f} s, {when}"))
    console.print(Text("\nStep times before and after the fault", style="bold"))
    console.print(plain_table(_PREDICTED_COLUMNS, (_predicted_cells(row) for row in rows)))


def print_server_fabric(rows: Sequence[Row], console: Console) -> None:
    """Print electrical and photonic values for each measurement and slice shape, with ratios and the verdict.

    If the recovery after the kill of a host was measured, its tables come first.
    """
    console = _wide(console)
    recovered = [row for row in rows if not row.get("measure")]
    if recovered:
        print_recoveries(recovered, console)
    shown = [row for row in rows if row.get("measure")]
    if not shown:
        return
    console.print(
        Text("Ports fixed to a dimension (electrical) and steered to the slice's peers (photonic)", style="bold")
    )
    console.print(plain_table(_SHAPE_COLUMNS, _shape_lines(shown)))
    for text in verdict_lines(shown, lambda row: f"{row['measure']}, {row['shape']}, {row['fabric']}"):
        console.print(text)


def _wide(console: Console) -> Console:
    """A console on which tables keep their full width if the output is not a terminal."""
    return console if console.is_terminal else Console(file=console.file, width=_WIDTH, no_color=True)


def _point_name(row: Row) -> str:
    return f"{row['fabric']}, tenant {row['tenant']}, {row['event']}"


# ---- parts ---------------------------------------------------------------------------------------------------------


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of all parts in ``rows``, in order."""
    found = [name for row in rows for key in ("breakdown", "predicted_breakdown") for name, _ in row.get(key) or ()]
    return [*(name for name in _PARTS if name in found), *sorted(set(found) - set(_PARTS))]


def _part_columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    parts: list[Column] = [(name.replace(" ", "\n"), "right") for name in _names(rows)]
    return (("fabric", "left"), ("event", "left"), *parts, ("outage", "right"), ("outcome", "left"))


def _part_lines(rows: Sequence[Row]) -> Iterable[list[Cell]]:
    """Two lines for each row: measured, and below it the model."""
    names = _names(rows)
    for row in rows:
        if row.get("breakdown"):
            outage = _number(row.get("outage_s"), ".2f")
            yield [row["fabric"], row["event"], *_parts(row["breakdown"], names), outage, row.get("state", "")]
        elif "state" in row:
            yield [row["fabric"], row["event"], *("-" for _ in names), "-", row["state"]]
        if row.get("predicted_breakdown"):
            outage = _number(row.get("predicted_outage_s"), ".2f")
            first = "" if "state" in row else row["fabric"]
            yield [first, Text("model", "dim"), *_parts(row["predicted_breakdown"], names), outage, ""]


def _parts(breakdown: Iterable[tuple[str, float]], names: Sequence[str]) -> list[str]:
    known = dict(breakdown)
    return [_number(known.get(name), ".3f") for name in names]


def _circuit_lines(rows: Iterable[Row]) -> Iterable[Text]:
    """Lines on the time until circuits or routes were up, with the shares of detection, decision and rewiring."""
    for row in rows:
        known = dict(row.get("breakdown") or ())
        whole = row.get("circuits_s")
        if not whole:
            if row.get("reason"):
                yield Text(f"{row['fabric']}: tenant {row['tenant']} is {row['state']}: {row['reason']}", "yellow")
            continue
        shares = ", ".join(f"{name} {known.get(name, 0.0) / whole:.0%}" for name in _BEFORE_CIRCUITS)
        what = "circuits" if row["fabric"] == PHOTONIC else "routes"
        paper = f"; paper {PAPER_CIRCUITS_S:g} s (MORPHLUX)" if row.get("paper_circuits_s") else ""
        yield Text(f"{row['fabric']}: {what} up {whole:.3f} s after the fault ({shares}){paper}")


# ---- steps ---------------------------------------------------------------------------------------------------------


def _step_cells(row: Row) -> list[Cell]:
    before, after = row.get("step_time_before_s"), row.get("step_time_after_s")
    state = row.get("checksum_ok")
    return [
        row["fabric"],
        _tenant(row),
        _number(before, ".3f"),
        _number(row.get("predicted_step_time_before_s"), ".3f"),
        _number(after, ".3f"),
        _number(row.get("predicted_step_time_after_s"), ".3f"),
        _number(after / before if before and after else None, ".3f"),
        _number(row.get("after_to_photonic"), ".2f"),
        _paper_ratio(row),
        _number(row.get("busbw_before_gb_s"), ".3g"),
        _number(row.get("busbw_after_gb_s"), ".3g"),
        _number(row.get("lost_steps"), "d"),
        "-" if state is None else Text("yes", "green") if state else Text("NO", "bold red"),
        _reserve(row),
        _faithful(row.get("faithful", False)),
    ]


def _predicted_cells(row: Row) -> list[Cell]:
    return [
        row["fabric"],
        _tenant(row),
        _number(row.get("predicted_step_time_before_s"), ".3f"),
        _number(row.get("predicted_step_time_after_s"), ".3f"),
        _number(row.get("predicted_after_to_photonic"), ".2f"),
        _paper_ratio(row),
        _reserve(row),
    ]


def _neighbour_lines(rows: Iterable[Row]) -> Iterable[Text]:
    """Lines on the change of step time of tenants that did not lose a chip."""
    for row in rows:
        if row["event"] == "neighbour" and row.get("change") is not None:
            during = row.get("step_time_during_s")
            outage = "" if during is None else f", {during:.3f} s during the outage"
            yield Text(f"{row['fabric']}: step time of tenant {row['tenant']} changed by {row['change']:+.1%}{outage}")


def _tenant(row: Row) -> str:
    return f"{row['tenant']} (neighbour)" if row["event"] == "neighbour" else str(row["tenant"])


def _paper_ratio(row: Row) -> str:
    if row["event"] == "neighbour" or not row.get("paper_after_to_photonic"):
        return "-"
    low, high = PAPER_SLOWDOWN
    return f"{low:g} to {high:g}"


def _reserve(row: Row) -> str:
    spares, chips = row.get("reserve_chips"), row.get("chips")
    return "-" if spares is None or not chips else f"{spares} of {chips}"


# ---- shapes --------------------------------------------------------------------------------------------------------


def _shape_lines(rows: Sequence[Row]) -> Iterable[list[Cell]]:
    for measure in MEASURES:
        mine = [row for row in rows if row["measure"] == measure]
        for shape in dict.fromkeys(row["shape"] for row in mine):
            of_fabric = {row["fabric"]: row for row in mine if row["shape"] == shape}
            pair = [of_fabric.get(fabric, {}) for fabric in ("electrical", "photonic")]
            some = next(iter(of_fabric.values()))
            yield [
                measure,
                shape,
                some["unit"],
                *(_number(row.get(key), ".4g") for row in pair for key in ("value", "predicted")),
                _number(gain(rows, measure, shape), ".2f"),
                _number(gain(rows, measure, shape, "predicted"), ".2f"),
                _number(some.get("paper_ratio"), ".2f"),
                _faithful(all(row.get("faithful") for row in of_fabric.values())),
            ]


def _faithful(faithful: bool) -> Text:
    return Text("yes", "green") if faithful else Text(NOT_FAITHFUL, "bold red")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
