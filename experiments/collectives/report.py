"""Tables of trials, one for each study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.report import FAITHFUL, Column, Table, off_percent, spread, spread_percent
from measure.metrics.estimate import Estimate
from measure.results.estimates import ratio_of
from measure.results.row import Row
from railyard.digits import significant
from railyard.size import in_words


def trial_point(row: Row) -> str:
    late = f", {row['straggler_delay_s']:.3g} s late" if row["straggler_delay_s"] else ""
    fabric = row.get("circuits") or row["fabric"]
    return f"{row['algorithm']}, {row['n']} ranks, {in_words(row['bytes'])}, {fabric}{late}"


def trial_tables(rows: Sequence[Row]) -> Iterator[Table]:
    for study in dict.fromkeys(row["study"] for row in rows):
        mine = [row for row in rows if row["study"] == study]
        yield Table(f"study: {study}" if study else "collectives", _columns(mine), mine)


def _columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    def over_ring(row: Row) -> float | None:
        found = _over_ring(rows, row)
        return None if found is None else found.median

    def over_ring_spread(row: Row) -> str | None:
        return None if row["algorithm"] == "ring" else spread_percent(_over_ring(rows, row))

    late = any(row["straggler_delay_s"] for row in rows)
    after = (
        Column("after\narrival", "after_arrival_s", significant),
        Column("model\nafter", "predicted_after_arrival_s", significant, wide=True),
    )
    return (
        Column("algorithm", "algorithm", left=True),
        Column("circuits", lambda row: row.get("circuits") or None, left=True),
        Column("n", "n", "d"),
        Column("size\nbytes", "bytes", ","),
        Column("reconf.\nms", lambda row: row["reconfiguration_delay_ms"] or None, "g"),
        Column("late\ns", lambda row: row["straggler_delay_s"] or None, significant),
        Column("T_crit\ns", "critical_delay_s", significant),
        Column("second\nlate s", lambda row: row.get("second_delay_s") or None, significant),
        Column("buckets", "buckets", "d"),
        Column("groups", "groups", "d"),
        Column("chosen", "chosen", left=True, wide=True),
        Column("early\nshare", "early_share", ".2f"),
        Column("time\ns", "time_s", significant),
        spread("time_s", wide=True),
        Column("model\ns", "predicted_time_s", significant),
        Column("off\n%", lambda row: off_percent(row["time_s"], row["predicted_time_s"]), "+.1f"),
        Column("law\ns", "law_s", significant, wide=True),
        Column("in time\ns", "in_time_s", significant),
        *(after if late else ()),
        Column("bound\ns", "bound_s", significant, wide=True),
        Column("formula\ns", "formula_s", significant, wide=True),
        Column("time /\nform.", "over_formula", ".3f"),
        Column("ring\n/ this", over_ring, ".3f"),
        Column("±\n%", over_ring_spread, wide=True),
        Column("busbw\nGb/s", "busbw_gbps", ".4g", wide=True),
        Column("rounds", "rounds", "d", wide=True),
        Column("wrong", "wrong", "d", wide=True),
        Column("fabric", "fabric", left=True, wide=True),
        FAITHFUL,
    )


def _over_ring(rows: Sequence[Row], row: Row) -> Estimate | None:
    """The time of Ring after the arrival over that of ``row``, within a repeat."""
    rings = [r for r in rows if r["algorithm"] == "ring" and same_but_algorithm(r, row)]
    return ratio_of(rings[0], row, "after_arrival_s") if rings else None


def same_but_algorithm(one: Row, other: Row) -> bool:
    """Whether two rows of a study differ at most in the algorithm."""
    keys = ("n", "bytes", "fabric", "reconfiguration_delay_ms", "straggler_delay_s", "persistence", "all_reduce_share")
    return all(one.get(key) == other.get(key) for key in (*keys, "second_delay_s", "buckets", "groups"))
