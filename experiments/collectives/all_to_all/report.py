"""Report of the all-to-all experiment: tables and findings on time and delivery, and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from experiments.collectives.all_to_all.experiment import AllToAllSettings
from experiments.collectives.all_to_all.formula import formula
from experiments.collectives.all_to_all.routes import ROUTE
from experiments.collectives.rounds import crossings
from experiments.report import FAITHFUL, Cell, Column, Drawn, Recorded, Report, Table, spread, to_nothing
from experiments.settings import recorded_settings
from measure.results.row import Row
from railyard.digits import significant
from railyard.size import in_words

_COLUMNS = (
    Column("policy", "policy", left=True),
    Column("n", "n", "d"),
    Column("bytes\n/ pair", "bytes_per_pair", ","),
    Column("T\nms", "reconfiguration_delay_ms", "g"),
    Column("slot\nms", "slot_ms", "g"),
    Column("time\ns", "time_s", significant),
    spread("time_s", wide=True),
    Column("model\ns", "predicted_time_s", significant),
    Column("formula\ns", "formula_s", significant, wide=True),
    Column("time /\nform.", "over_formula", ".3f"),
    Column("duty\n%", lambda row: _percent(row["duty_cycle"]), ".1f"),
    Column("ideal\n%", lambda row: _percent(row["ideal_duty_cycle"]), ".1f", wide=True),
    Column("slots", "slots", ".3g", wide=True),
    Column("goodput\nGb/s", "goodput_gbps", ".4g", wide=True),
    Column("fabric", "fabric", left=True, wide=True),
    Column("wrong\nhost", "misdelivered", "d", wide=True),
    Column("lost\npackets", "lost_packets", "d", wide=True),
    Column("sent\nagain", "retransmissions", "d", wide=True),
    FAITHFUL,
)


_ROUTE_COLUMNS = (
    Column("n", "n", "d"),
    Column("slot", "slot", "d"),
    Column("ranks", lambda row: "-".join(map(str, row["pair"])), left=True),
    Column("gates", "gates", "d"),
    Column("loss\ndB", "loss_db", ".1f"),
    Column("round trip\nms", "round_trip_ms", ".2f"),
    Column("law\nms", "predicted_round_trip_ms", ".2f"),
    Column("time /\nlaw", "over_law", ".3f"),
    FAITHFUL,
)


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    for study in dict.fromkeys(row["study"] for row in rows):
        title = f"study: {study}" if study else "all-to-all"
        columns = _ROUTE_COLUMNS if study == ROUTE else _COLUMNS
        yield Table(title, columns, [row for row in rows if row["study"] == study])


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
    of_trials = [row for row in rows if row["study"] != ROUTE]
    yield from _found(of_trials)
    yield from map(Text, crossings(of_trials, recorded_settings(AllToAllSettings, settings).trials, formula))
    yield from _delivered(of_trials)


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.collectives.all_to_all.figures import FIGURES, all_to_all_figures, study_rows

    for name, figure in all_to_all_figures(recorded.rows).items():
        yield Drawn(name, figure, study_rows(recorded.rows, FIGURES[name][0]))


def _point_name(row: Row) -> str:
    if row["study"] == ROUTE:
        return f"round trip, {row['n']} ranks, slot {row['slot']}, {row['pair'][0]}-{row['pair'][1]}"
    slot = f", slots of {row['slot_ms']:g} ms" if row.get("slot_ms") else ""
    size = in_words(row["bytes_per_pair"])
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
        yield Text(f"{_point_name(row)}: ranks sent {sent:,.12g} bytes and received {received:,.12g}.", "bold red")
    if both and not unequal:
        yield Text("At every point the ranks received as many bytes as they sent.", "green")


REPORT = Report(tables=_tables, point=_point_name, findings=_findings, figures=_figures, calibrated=to_nothing)
