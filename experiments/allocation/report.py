"""Report of the allocation experiment: a table for each study beside published values, and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.allocation.failures import OVERPROVISION
from experiments.allocation.row import SYSTEMS
from experiments.allocation.studies import FAILED, INDEX, SOLVER, SPARES, published_failed, published_index
from experiments.report import Column, Drawn, Recorded, Report, Table, to_nothing
from measure.results.row import Row


def _system(row: Row) -> str:
    return SYSTEMS[row["system"]]


def _paper_share(row: Row) -> str | None:
    share = published_failed(row["system"], row["mix"], row["freed"], row["chips"])
    return None if share is None else f"~{share:.0%}" if share else "0%"


def _paper_index(row: Row) -> str | None:
    index = published_index(row["system"], row["freed"])
    return None if index is None else f"up to {index:g}" if index else "0"


def _paper_ratio(row: Row) -> str | None:
    ratio = OVERPROVISION.values.get(row["system"])
    return None if ratio is None else f"about {ratio:g}x" if ratio > 1 else "1x"


_MIX, _FREED = Column("mix", "mix", left=True), Column("freed", "freed", ".0%", left=True)
_SYSTEM = Column("system", _system, left=True)
_REQUESTS = (
    _MIX,
    _FREED,
    _SYSTEM,
    Column("requests", "requests", "d"),
    Column("in racks", lambda row: f"{row['racks_with_room']} of {row['racks']}", wide=True),
    Column("failed", "failed", "d"),
    Column("share", "failed_share", ".0%"),
    Column(FAILED.heading, _paper_share),
    Column("fragm.", "fragmented", "d"),
    Column("thin", "thin", "d", wide=True),
)
_TABLES: dict[str, tuple[str, tuple[Column, ...]]] = {
    "fragmentation": (
        "Fragmentation index of a rack, I = 1 - S/T",
        (
            _MIX,
            _FREED,
            _SYSTEM,
            Column("median", "index_median", ".2f"),
            Column("mean", "index_mean", ".2f"),
            Column("most", "index_max", ".2f"),
            Column(INDEX.heading, _paper_index),
        ),
    ),
    "requests": ("Requests for large slices, in each rack as many as its free chips suffice for", _REQUESTS),
    "mixes": ("Requests for large slices, for other mixes", _REQUESTS),
    "bandwidth": (
        "Egress lost by a static split and regained by steering, of a chip's egress, mean over a rack\n"
        "(what MORPHLUX gives is the gain of training throughput, another quantity)",
        (
            _MIX,
            Column("usable\nif", "rule", left=True),
            Column("fibres", lambda row: "counted" if row["fibres_counted"] else "no limit", left=True),
            Column("static\nshare", "static_share_mean", ".0%"),
            Column("gain\nmedian", "gain_median", ".0%"),
            Column("gain\nmost", "gain_max", ".0%"),
            Column("racks\n> 30 %", "above_30_percent", ".0%"),
        ),
    ),
    "overprovision": (
        "Chips out of use after failures in a rack",
        (
            Column("dead chips", "failures", "d"),
            Column("system", "system", left=True),
            Column("out of use", "chips_mean", ".2f"),
            Column("to MORPHLUX", lambda row: f"{row['ratio_to_morphlux']:.2f}x"),
            Column(OVERPROVISION.heading, _paper_ratio),
            Column("spliced", "spliced_share", ".1%"),
        ),
    ),
    "spares": (
        "Spares for the service level, K: smallest with Z(K) <= 1 - SLO",
        (
            Column("groups", lambda row: f"{row['groups']} {row['of']}", left=True),
            Column("p_fail", lambda row: f"{row['p_fail_low']:.0%} to {row['p_fail_high']:.0%}", left=True),
            Column("SLO", "slo", ".0%"),
            Column("K", "spares", "d"),
            Column("of draws", lambda row: f"{row['spares_least']} to {row['spares_most']}"),
            Column(SPARES[64].heading, "derived_spares", "d"),
            Column("chips kept", "reserve_chips", "d"),
            Column("rack / kept", lambda row: f"{row['rack_to_reserve']:.1f}x"),
        ),
    ),
    "solver": (
        "Time to allocate one slice from fragments (wall clock)",
        (
            Column("request", lambda row: f"{row['chips']} chips, {row['outcome']}", left=True),
            Column("number", "count", "d"),
            Column("median ms", lambda row: row["median_s"] * 1e3, ".0f"),
            Column("worst ms", lambda row: row["worst_s"] * 1e3, ".0f"),
            Column(f"{SOLVER.heading}, ms", lambda row: f"below {row['paper_s'] * 1e3:.0f}"),
        ),
    ),
}


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    for study, (title, columns) in _TABLES.items():
        mine = [row for row in rows if row["study"] == study]
        if mine:
            yield Table(title, columns, mine)


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.allocation.figures import allocation_figures

    note = f"Seed {recorded.rows[0]['seed']}." if recorded.rows else ""
    for name, figure in allocation_figures(recorded.rows).items():
        yield Drawn(name, figure, recorded.rows, note)


REPORT = Report(tables=_tables, figures=_figures, calibrated=to_nothing)
