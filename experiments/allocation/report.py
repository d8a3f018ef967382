"""Report of an allocation experiment: tables beside the paper's values, and figures drawn from the results folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from experiments.allocation.figures import SYSTEMS, allocation_figures
from experiments.rails.report import Column, plain_table
from measure.figures.style import png
from measure.results.results import FIGURES, Results
from measure.results.row import Row

Cells = Callable[[Row], Sequence[str]]


def print_allocation(rows: Sequence[Row], console: Console) -> None:
    """Print a table for each study in ``rows``."""
    if not console.is_terminal:
        console = Console(file=console.file, width=150, no_color=True)
    for study, (title, columns, cells) in _TABLES.items():
        mine = [row for row in rows if row["study"] == study]
        if mine:
            console.print(Text(title, style="bold"))
            console.print(plain_table(columns, (cells(row) for row in mine)))
            console.print()


def redraw_allocation(folder: Path) -> list[Path]:
    """Draw all figures of a results folder again; returns the paths written. ``ConfigError`` for another folder."""
    results = Results.open(folder)
    rows = results.rows()
    note = f"Seed {rows[0]['seed']}." if rows else ""
    drawn = allocation_figures(rows)
    written = [
        results.write(f"{FIGURES}/{name}.png", png(figure, None, faithful=True, note=note))
        for name, figure in drawn.items()
    ]
    results.hand_over()
    return written


def _system(row: Row) -> str:
    return SYSTEMS[row["system"]][0]


def _fragmentation(row: Row) -> list[str]:
    return [
        row["mix"],
        f"{row['freed']:.0%}",
        _system(row),
        f"{row['index_median']:.2f}",
        f"{row['index_mean']:.2f}",
        f"{row['index_max']:.2f}",
        f"up to {row['paper_index_max']:g}" if row["paper_index_max"] else "0",
    ]


def _requests(row: Row) -> list[str]:
    share = row["failed_share"]
    paper = row["paper_failed_share"]
    return [
        row["mix"],
        f"{row['freed']:.0%}",
        _system(row),
        f"{row['requests']} in {row['racks_with_room']} of {row['racks']} racks",
        str(row["failed"]),
        "-" if share is None else f"{share:.0%}",
        f"about {paper:.0%}" if paper else "0 %",
        str(row["fragmented"]),
        str(row["thin"]),
    ]


def _bandwidth(row: Row) -> list[str]:
    return [
        row["mix"],
        row["rule"],
        "counted" if row["fibres_counted"] else "no limit",
        f"{row['static_share_mean']:.0%}",
        f"{row['gain_median']:.0%}",
        f"{row['gain_max']:.0%}",
        f"{row['above_30_percent']:.0%}",
        f"half of racks > {row['paper_gain_median']:.0%}, most {row['paper_gain_max']:.0%}",
    ]


def _overprovision(row: Row) -> list[str]:
    ratio, spliced = row["paper_ratio"], row["spliced_share"]
    return [
        str(row["failures"]),
        row["system"],
        f"{row['chips_mean']:.2f}",
        f"{row['ratio_to_morphlux']:.2f}x",
        "-" if ratio is None else f"about {ratio:g}x" if ratio > 1 else "1x",
        "-" if spliced is None else f"{spliced:.1%}",
    ]


def _spares(row: Row) -> list[str]:
    low, high = row["p_fail_low"], row["p_fail_high"]
    paper = row["paper_spares"]
    return [
        f"{row['groups']} {row['of']}",
        f"{low:.0%} to {high:.0%}",
        f"{row['slo']:.0%}",
        str(row["spares"]),
        f"{row['spares_least']} to {row['spares_most']}",
        "-" if paper is None else str(paper),
        str(row["reserve_chips"]),
        f"{row['rack_to_reserve']:.1f}x",
    ]


def _solver(row: Row) -> list[str]:
    return [
        f"{row['chips']} chips, {row['outcome']}",
        str(row["count"]),
        f"{row['median_s'] * 1e3:.0f}",
        f"{row['worst_s'] * 1e3:.0f}",
        f"below {row['paper_s'] * 1e3:.0f}",
    ]


def _columns(left: Sequence[str], right: Sequence[str]) -> tuple[Column, ...]:
    return (*((name, "left") for name in left), *((name, "right") for name in right))


_REQUEST_COLUMNS = _columns(
    ("mix", "freed", "system", "requests"), ("failed", "share", "paper", "fragmented", "with fewer\ncircuits")
)
_TABLES: dict[str, tuple[str, tuple[Column, ...], Cells]] = {
    "fragmentation": (
        "Fragmentation index of a rack, I = 1 - S/T",
        _columns(("mix", "freed", "system"), ("median", "mean", "most", "paper")),
        _fragmentation,
    ),
    "requests": (
        "Requests for large slices, in each rack as many as its free chips would suffice for",
        _REQUEST_COLUMNS,
        _requests,
    ),
    "mixes": ("Requests for large slices, for other mixes", _REQUEST_COLUMNS, _requests),
    "bandwidth": (
        "Egress lost by a static split and regained by steering, % of a chip's egress, mean over a rack",
        _columns(
            ("mix", "dimension\nusable", "fibres"),
            ("static\nshare", "gain\nmedian", "gain\nmost", "racks\n> 30 %", "paper"),
        ),
        _bandwidth,
    ),
    "overprovision": (
        "Chips out of use after failures in a rack",
        _columns(("failed", "system"), ("chips", "to MORPHLUX", "paper", "spliced")),
        _overprovision,
    ),
    "spares": (
        "Spares for the service level, K: smallest with Z(K) <= 1 - SLO",
        _columns(("groups", "p_fail", "SLO"), ("K", "of draws", "paper", "chips kept", "rack / kept")),
        _spares,
    ),
    "solver": (
        "Time to allocate one slice from fragments (wall clock)",
        _columns(("request",), ("number", "median\nms", "worst\nms", "paper\nms")),
        _solver,
    ),
}
