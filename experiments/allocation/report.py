"""Report of the allocation experiment: a table for each study beside published values, and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from experiments.allocation.experiment import FAILED, INDEX, OVERPROVISION, SERVED, THROUGHPUT, published_index
from experiments.allocation.reserve import CHIPS, SIZES
from experiments.allocation.row import SYSTEMS
from experiments.report import Column, Drawn, Recorded, Report, Table, to_nothing
from measure.results.estimates import estimate_of
from measure.results.row import Row


def _paper_share(row: Row) -> str | None:
    share = row["paper_failed_share"]
    return None if share is None else f"~{share:.0%}" if share else "0%"


def _interval(key: str, form: str = ".0%") -> Callable[[Row], str | None]:
    """The 95 % interval of the median over clusters of field ``key``; None for one cluster."""

    def shown(row: Row) -> str | None:
        found = estimate_of(row, key)
        if found is None or found.low is None or found.high is None:
            return None
        return f"{found.low:{form}} to {found.high:{form}}"

    return shown


def _throughput(row: Row) -> str | None:
    chips, egress = row["chips_ratio"], row["egress_ratio"]
    return None if chips is None else f"{chips:.2f} to {egress:.2f}"


def _paper_index(row: Row) -> str | None:
    index = published_index(row["system"], row["freed"])
    return None if index is None else f"up to {index:g}" if index else "0"


def _paper_ratio(row: Row) -> str | None:
    ratio = row["paper_ratio"]
    return None if ratio is None else f"about {ratio:g}x" if ratio > 1 else "1x"


_SYSTEM = Column("system", lambda row: SYSTEMS[row["system"]], left=True)
_PROTOCOL = (Column("protocol", "protocol", left=True), Column("chips", "asked", left=True))
_TABLES: dict[str, tuple[str, tuple[Column, ...]]] = {
    "fragmentation": (
        "Fragmentation index of a rack, I = 1 - S/T",
        (
            Column("mix", "mix", left=True),
            Column("freed", "freed", ".0%", left=True),
            _SYSTEM,
            Column("median", "index_median", ".2f"),
            Column("mean", "index_mean", ".2f"),
            Column("most", "index_max", ".2f"),
            Column("95 %\ninterval", _interval("index_max", ".2f")),
            Column(INDEX.heading, _paper_index),
        ),
    ),
    "protocols": (
        "Requests as MORPHLUX describes them, in clusters filled with as many chips in\n"
        "slices of each size (per-rack: every rack is asked for its own free chips;\n"
        "cluster: any rack serves, for the free chips of all racks)",
        (
            *_PROTOCOL,
            _SYSTEM,
            Column("requests", "requests", "d"),
            Column("failed", "failed_share", ".0%"),
            Column("95 %\ninterval", _interval("failed_share")),
            Column(FAILED.heading, _paper_share),
            Column("fragmented", "fragmented", "d", wide=True),
        ),
    ),
    "served": (
        "Slices and throughput of MORPHLUX / those of contiguous slices only (one pool:\n"
        "if free chips of all racks could be joined; throughput: if steps only compute,\n"
        "and if they only communicate)",
        (
            *_PROTOCOL,
            Column("slices", "served_ratio", ".2f"),
            Column("95 %\ninterval", _interval("served_ratio", ".2f")),
            Column(SERVED.heading, "paper_served_ratio", "g"),
            Column("one\npool", "pooled_ratio", ".2f"),
            Column("through-\nput", _throughput),
            Column(THROUGHPUT.heading, "paper_throughput", "g"),
        ),
    ),
    "overprovision": (
        "Chips out of use after failures in a rack, mean of a cluster's racks",
        (
            Column("dead\nchips", "failures", "d"),
            Column("system", "system", left=True),
            Column("out of\nuse", "chips_mean", ".2f"),
            Column("to\nMORPHLUX", lambda row: f"{row['ratio_to_morphlux']:.2f}x"),
            Column("95 %\ninterval", _interval("ratio_to_morphlux", ".2f")),
            Column(OVERPROVISION.heading, _paper_ratio),
            Column("spliced", "spliced_share", ".1%"),
        ),
    ),
    "reserve": (
        "Reserves of which one is free for every failure with probability SLO: chips or\n"
        "servers of one rack, and for all racks alike racks that stand idle or spare\n"
        "servers in each",
        (
            Column("failed\n%", "fail", left=True),
            Column("reserve", "system", left=True),
            Column("SLO", "slo", "g"),
            Column("units", "spares", "g"),
            Column(SIZES[CHIPS].heading, "paper_spares", "g"),
            Column("idle\nchips", "idle_share", ".1%"),
            Column("racks /\nservers", "idle_ratio", ".2f"),
        ),
    ),
}


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    for name, (title, columns) in _TABLES.items():
        if name == "served":
            mine = [row for row in rows if row["study"] == "protocols" and row["system"] == "morphlux"]
        else:
            mine = [row for row in rows if row["study"] == name]
        if mine:
            yield Table(title, columns, mine)


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.allocation.figures import allocation_figures

    note = f"Seed {recorded.rows[0]['seed']}." if recorded.rows else ""
    for name, figure in allocation_figures(recorded.rows).items():
        yield Drawn(name, figure, recorded.rows, note)


REPORT = Report(tables=_tables, figures=_figures, calibrated=to_nothing)
