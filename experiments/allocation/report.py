"""Report of the allocation experiment: a table for each study beside published values, and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from experiments.allocation.failures import OVERPROVISION
from experiments.allocation.row import SYSTEMS
from experiments.allocation.studies import (
    FAILED,
    INDEX,
    PORTS,
    SERVED,
    SOLVER,
    SPARES,
    SPARES_SHOWN,
    THROUGHPUT,
    published_index,
)
from experiments.report import Column, Drawn, Recorded, Report, Table, to_nothing
from measure.results.estimates import estimate_of
from measure.results.row import Row


def _system(row: Row) -> str:
    return SYSTEMS[row["system"]]


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


_MIX, _FREED = Column("mix", "mix", left=True), Column("freed", "freed", ".0%", left=True)
_SYSTEM = Column("system", _system, left=True)
_FAILED = (
    Column("failed", "failed_share", ".0%"),
    Column("95 %\ninterval", _interval("failed_share")),
    Column(FAILED.heading, _paper_share),
)
_PROTOCOL = (Column("protocol", "protocol", left=True), Column("chips", "asked", left=True))
_REQUESTS = (
    _MIX,
    _FREED,
    _SYSTEM,
    Column("requests", "requests", "d"),
    Column("in racks", lambda row: f"{row['racks_with_room']} of {row['racks']}", wide=True),
    Column("failed", "failed", "d", wide=True),
    *_FAILED,
    Column("fragm.", "fragmented", "d", wide=True),
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
            Column("95 %\ninterval", _interval("index_max", ".2f")),
            Column(INDEX.heading, _paper_index),
        ),
    ),
    "requests": ("Requests for large slices, in each rack as many as its free chips suffice for", _REQUESTS),
    "mixes": ("Requests for large slices, for other mixes", _REQUESTS),
    "protocols": (
        "Requests as MORPHLUX describes them, in clusters filled with as many chips in\n"
        "slices of each size (per-rack: every rack is asked for its own free chips;\n"
        "cluster: any rack serves, for the free chips of all racks)",
        (
            *_PROTOCOL,
            _SYSTEM,
            Column("requests", "requests", "d"),
            *_FAILED,
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
    "ports": (
        "Ports of full racks that slices can use if ports are fixed to dimensions (ring,\n"
        "link: dimensions that count whole; port: to neighbours in the slice)",
        (
            _MIX,
            Column("usable\nif", "rule", left=True),
            Column("median\nrack", "used_median", ".0%"),
            Column("95 %\ninterval", _interval("used_median")),
            Column("worst\nrack", "used_least", ".0%"),
            Column("95 %\ninterval", _interval("used_least")),
            Column(PORTS.heading, lambda row: row["paper_used_least"] and f"{row['paper_used_least']:.0%} at least"),
        ),
    ),
    "bandwidth": (
        "Egress lost by a static split and regained by steering, mean over a rack\n"
        "(what MORPHLUX gives is the gain of training throughput, another quantity)",
        (
            _MIX,
            Column("usable\nif", "rule", left=True),
            Column("fibres", lambda row: "counted" if row["fibres_counted"] else "no limit", left=True),
            Column("static\nshare", "static_share_mean", ".0%"),
            Column("gain\nmedian", "gain_median", ".0%"),
            Column("gain\nmost", "gain_max", ".0%"),
            Column("racks\n> 30 %", "above_30_percent", ".0%"),
            Column("95 %\ninterval", _interval("above_30_percent")),
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
    "spares": (
        "Spares K for the service level: the smallest with Z(K) below its complement\n"
        f"(MORPHLUX: {SPARES_SHOWN.values['chips']:g} chips or {SPARES_SHOWN.values['servers']:g} servers suffice "
        f"in most cases; {SPARES_SHOWN.label})",
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

_STUDY_OF = {"served": "protocols"}
"""Second tables of a study: of MORPHLUX's rows."""


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    for study, (title, columns) in _TABLES.items():
        mine = [row for row in rows if row["study"] == _STUDY_OF.get(study, study)]
        if study in _STUDY_OF:
            mine = [row for row in mine if row["system"] == "morphlux"]
        if mine:
            yield Table(title, columns, mine)


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.allocation.figures import allocation_figures

    note = f"Seed {recorded.rows[0]['seed']}." if recorded.rows else ""
    for name, figure in allocation_figures(recorded.rows).items():
        yield Drawn(name, figure, recorded.rows, note)


REPORT = Report(tables=_tables, figures=_figures, calibrated=to_nothing)
