"""Report of the Propius experiment: a table for each study, findings on ratios and laws, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from rich.text import Text

from experiments.propius.model.formulas import answer_s
from experiments.propius.row import merged, ratios, real_mb
from experiments.report import FAITHFUL, Cell, Column, Drawn, Recorded, Report, Table, off_percent
from measure.published import published
from measure.results.row import Row
from railyard.digits import significant

JCT, SCHEDULING, RESPONSE = (published(f"propius-{name}-6000") for name in ("jct", "scheduling", "response"))
_LAYERS = {"packets": "on packets", "virtual": "the authors' sizes, virtual time"}


def _ratio(top: str, bottom: str) -> Callable[[Row], float | None]:
    return lambda row: row[top] / row[bottom] if row[top] is not None and row[bottom] else None


def _finished(row: Row) -> str | None:
    return None if row["finished"] is None else f"{row['finished']:g} of {row['jobs']:g}"


_POLICY = (
    Column("policy", lambda row: row["policy"].rpartition(":")[2], left=True),
    Column("clients", "clients", "d"),
    Column("seeds", "seeds", "d", wide=True),
)
_STARVED = Column("starved", lambda row: row["starved"] or "-", left=True)
_COLUMNS: Mapping[str, tuple[str, tuple[Column, ...]]] = {
    "jct": (
        "Job completion time",
        (
            *_POLICY,
            Column("JCT\ns", "jct_s", ".0f"),
            Column("model\ns", "predicted_jct_s", ".0f"),
            Column("off\n%", lambda row: off_percent(row["jct_s"], row["predicted_jct_s"]), "+.0f"),
            Column(f"authors,\n{JCT.kind}\ns", "authors_jct_s", ".0f"),
            Column("off\n%", lambda row: off_percent(row["jct_s"], row["authors_jct_s"]), "+.0f"),
            Column("of the authors", "authors_kind", left=True, wide=True),
            Column("finished", _finished),
            _STARVED,
            FAITHFUL,
        ),
    ),
    "utilisation": (
        "Utilisation: busy time over the length of the run, of the clients with work and of all clients",
        (
            *_POLICY,
            Column("clients\nwith work", "utilisation", ".0%"),
            Column("all\nclients", "active_share", ".0%"),
            Column("run\ns", "run_s", ".0f"),
            FAITHFUL,
        ),
    ),
    "throughput": (
        "Throughput: clients bound to a job, and clients of completed rounds",
        (
            *_POLICY,
            Column("bound\n/ s", "bindings_per_s", ".3f"),
            Column("model\n/ s", "predicted_bindings_per_s", ".3f"),
            Column("useful\n/ s", "useful_per_s", ".3f"),
            Column("model\n/ s", "predicted_useful_per_s", ".3f"),
            Column("rounds\nrepeated", "rounds_repeated", ".0f"),
            Column("model", "predicted_rounds_repeated", ".0f"),
            FAITHFUL,
        ),
    ),
    "delays": (
        "Scheduling delay and response time of a round, mean",
        (
            *_POLICY,
            Column("sched.\ns", "scheduling_delay_s", ".1f"),
            Column("sched.\nmodel", "predicted_scheduling_delay_s", ".1f"),
            Column(f"sched.\nauthors,\n{SCHEDULING.kind}", "authors_scheduling_delay_s", ".1f"),
            Column("resp.\ns", "response_time_s", ".1f"),
            Column("resp.\nmodel", "predicted_response_time_s", ".1f"),
            Column(f"resp.\nauthors,\n{RESPONSE.kind}", "authors_response_time_s", ".1f"),
            FAITHFUL,
        ),
    ),
    "tree": (
        "Bytes on the root's link, all clients of one round starting together",
        (
            Column("topology", "topology", left=True),
            Column("mode", "mode", left=True),
            Column("clients", "clients", "d"),
            Column("sent\nMB", real_mb("root_bytes"), ".1f"),
            Column("law\nMB", real_mb("predicted_root_bytes"), ".1f"),
            Column("sent /\nlaw", _ratio("root_bytes", "predicted_root_bytes"), ".3f"),
            Column("received\nMB", real_mb("root_received_bytes"), ".1f"),
            Column("hand-out\ns", "time_s", ".1f", wide=True),
            FAITHFUL,
        ),
    ),
    "trouble": (
        "Faults: acknowledged updates and what became of them",
        (
            Column("case", "case", left=True),
            Column("mode", "mode", left=True),
            Column("kills", "kills", "d", wide=True),
            Column("ackn.", "updates_acknowledged", "d"),
            Column("lost", "updates_lost", "d"),
            Column("twice", "updates_twice", "d"),
            Column("late", "updates_late", "d"),
            Column("wrong\nsums", "wrong_sums", "d", wide=True),
            Column("JCT\ns", "jct_s", ".0f"),
            Column("jobs", _finished),
            FAITHFUL,
        ),
    ),
    "trunk": (
        "One round over an optical trunk whose regions take turns, and over an electrical one",
        (
            Column("trunk", "policy", left=True),
            Column("delay\nms", "delay_ms", "g"),
            Column("round\ns", "time_s", significant),
            Column("formula\ns", "predicted_time_s", significant),
            Column("off\n%", lambda row: off_percent(row["time_s"], row["predicted_time_s"]), "+.1f"),
            Column("sent\nMB", real_mb("root_bytes"), ".1f"),
            FAITHFUL,
        ),
    ),
}
_MEASURED_ALONE = {"utilisation": "utilisation"}
"""A study without a column of the model, and what its table needs."""
_BY_SEED = ("jct", "utilisation", "throughput", "delays")


_OVER_IRS = (
    Column("of", "of", left=True),
    *_POLICY,
    Column("over irs", "measured", left=True),
    Column("by the model", "model", left=True),
)
_COMPARED = {"jct": {"JCT": "jct_s"}, "delays": {"sched.": "scheduling_delay_s", "resp.": "response_time_s"}}


def _over_irs(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Times under each policy over those under irs, by number of clients; ``rows`` are those of one layer."""
    for study, columns in _COMPARED.items():
        of_study = [row for row in rows if row["study"] == study]
        for (name, column), above in product(columns.items(), dict.fromkeys(row["policy"] for row in of_study)):
            measured, model = (ratios(of_study, key, above, "irs") for key in (column, f"predicted_{column}"))
            for clients in sorted({*measured, *model} if above != "irs" else ()):
                intervals = {"measured": measured.get(clients), "model": model.get(clients)}
                words = {key: interval and str(interval) for key, interval in intervals.items()}
                seeds = max(interval.count for interval in intervals.values() if interval)
                yield {"of": name, "policy": above, "clients": clients, "seeds": seeds, **words}


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    for study, (title, columns) in _COLUMNS.items():
        of_study = [row for row in rows if row["study"] == study]
        for layer, where in _LAYERS.items():
            mine = [row for row in of_study if row["layer"] == layer]
            needed = _MEASURED_ALONE.get(study)
            if mine and (needed is None or any(row[needed] is not None for row in mine)):
                said = f"{title} ({where})" if study in _BY_SEED else title
                yield Table(said, columns, merged(mine) if study in _BY_SEED else mine)
    for layer, where in _LAYERS.items():
        if over := list(_over_irs([row for row in rows if row["layer"] == layer])):
            yield Table(f"Over irs, seed by seed: mean and 95 % interval ({where})", _OVER_IRS, over)


def _point(row: Row) -> str:
    what = (row["case"], row["policy"], row["mode"], row["topology"])
    words = [row["study"], *(word for word in what if word), f"{row['clients']} clients"]
    return ", ".join(words)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
    yield from _managers_line([row for row in rows if row["checkin_wall_s"]])
    yield from _trunk_line([row for row in rows if row["study"] == "trunk"])
    yield from _trouble_lines([row for row in rows if row["study"] == "trouble"])


def _managers_line(rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        service_s = fmean(row["checkin_wall_s"] for row in rows)
        answers = ", ".join(f"{answer_s(_BUSY / service_s, service_s, count) * 1e3:.2g}" for count in (1, 2, 4))
        yield (
            f"A client manager spends {service_s * 1e3:.2g} ms of a processor on a check-in and carries "
            f"{1 / service_s:,.0f} a second. By the law of M/M/1 queues 1, 2 and 4 managers on processors of their own "
            f"answer {_BUSY / service_s:,.0f} a second after {answers} ms (wall-clock time)."
        )


_BUSY = 0.8
"""A load of one client manager at which a second one is worth having."""


def _trunk_line(rows: Sequence[Row]) -> Iterator[str]:
    yield from (f"{sentence}." for sentence in dict.fromkeys(row["finding"] for row in rows if row["finding"]))


def _trouble_lines(rows: Iterable[Row]) -> Iterator[Text]:
    fixed = [row for row in rows if row["mode"] == "fixed"]
    if fixed:
        acknowledged, lost, twice = (
            sum(row[key] or 0 for row in fixed) for key in ("updates_acknowledged", "updates_lost", "updates_twice")
        )
        said = f"fixed: {lost} of {acknowledged} acknowledged updates lost, {twice} counted twice."
        yield Text(said, "bold red" if lost or twice else "green")


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.propius.figures import propius_figures

    yield from propius_figures(recorded.rows)


def _calibrated(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    yield "propius-population"
    if any(row["layer"] == "virtual" for row in rows):
        yield "propius-speed-by-rank"
        yield "propius-speed-share"
        if settings["virtual_online"] is None:
            yield "propius-online"
            yield "propius-online-plentiful"


REPORT = Report(tables=_tables, point=_point, findings=_findings, figures=_figures, calibrated=_calibrated)
