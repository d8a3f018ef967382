"""Report of the rail experiment: its table, and figures of the sweep, the windows, and a time line of each mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.rails.overhead import HEADING, electrical_row, overhead, published_overhead
from experiments.report import FAITHFUL, Column, Drawn, Recorded, Report, Table, in_words, off_percent, spread
from measure.metrics.point import Point, within
from measure.published import published
from measure.results.estimates import slope_of
from measure.results.manifest import groups_of, left_out, plans_of, scale_of
from measure.results.row import Row
from railyard.digits import significant
from railyard.timeline import Event
from workloads.catalog import DEFAULT_PORT_GBPS


def _columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    base = electrical_row(rows)
    model = None if base is None else base["predicted_step_time_s"]

    def over(row: Row) -> float | None:
        found = overhead(row, base)
        return None if found is None else found.median

    def over_spread(row: Row) -> float | None:
        found = overhead(row, base)
        return None if found is None or row is base else found.half_width

    return (
        Column("mode", "mode", left=True),
        Column("delay\nms", "reconfiguration_delay_ms", "g"),
        Column("step\ns", "step_time_s", significant),
        spread("step_time_s"),
        Column("model\ns", "predicted_step_time_s", significant),
        Column("off\n%", lambda row: off_percent(row["step_time_s"], row["predicted_step_time_s"]), "+.1f"),
        Column("over\nel. %", over, "+.1f"),
        Column("reconf.\n/ step", "reconfigurations_per_step", ".3g", wide=True),
        Column("± of\nover", over_spread, ".1f", wide=True),
        Column("model\nover %", lambda row: off_percent(row["predicted_step_time_s"], model), "+.3g", wide=True),
        Column(HEADING, published_overhead, "+.3g", wide=True),
        Column("model\n/ step", "predicted_reconfigurations_per_step", ".3g", wide=True),
        Column("exposed\ns", "exposed_s", ".3f"),
        Column("model\nexposed", "predicted_exposed_s", ".3f", wide=True),
        Column("hidden\ns", "hidden_s", ".3f", wide=True),
        Column("model\nhidden", "predicted_hidden_s", ".3f", wide=True),
        Column("stale\ns", "stale_step_time_s", significant, wide=True),
        Column("model\nstale", "predicted_stale_step_time_s", significant, wide=True),
        Column("stall law\ns", "stall_law_step_time_s", significant, wide=True),
        Column("window\nms", lambda row: row["window_median_s"] and row["window_median_s"] * 1e3, ".3g", wide=True),
        Column("lost\npackets", "packets_lost", "d", wide=True),
        Column("sent\nagain", "retransmissions", "d", wide=True),
        Column("wrong\nhost", "misdelivered", "d", wide=True),
        Column("policy", "policy", left=True, wide=True),
        FAITHFUL,
    )


_LATE = (
    Column("mode", "mode", left=True),
    Column("delay\nms", "reconfiguration_delay_ms", "g"),
    Column("late", "late", left=True),
    Column("step\ns", "step_time_s", significant),
    spread("step_time_s"),
    Column("model\ns", "predicted_step_time_s", significant),
    Column("off\n%", lambda row: off_percent(row["step_time_s"], row["predicted_step_time_s"]), "+.1f"),
    Column("late by\ns", "late_s", ".3g", wide=True),
    Column("adds\ns", "late_adds_s", ".3f"),
    Column("model\nadds", "predicted_late_adds_s", ".3f"),
    FAITHFUL,
)
_DELAYS = (
    Column("mode", "mode", left=True),
    Column("delay\nms", "reconfiguration_delay_ms", "g"),
    Column("of the\ndelays", "quantile", left=True),
    *(Column(name.replace("_", " "), name, ".1f") for name in ("whole", "control", "dark", "recovery", "first_byte")),
)
"""A line for each quantile of ``circuit_delay_wall_s``, in milliseconds."""
_LOST = (
    Column("mode", "mode", left=True),
    Column("delay\nms", "reconfiguration_delay_ms", "g"),
    Column("without a\ncontroller s", "controller_restart_wall_s", ".3f"),
    Column("a rank\nwaits s", "controller_wait_wall_s", ".3f"),
    Column("steps\nlate s", "controller_late_wall_s", ".3f"),
    Column("wrong\nhost", "misdelivered", "d"),
    FAITHFUL,
)


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    punctual, late = ([row for row in rows if bool(row.get("late")) == wanted] for wanted in (False, True))
    yield Table(f"{rows[0]['workload']}, seed {rows[0]['seed']}", _columns(punctual), punctual)
    if late:
        yield Table("With a late rank, and what it adds to the step of the same point without it", _LATE, late)
    delays = [
        {**row, "quantile": quantile} | {name: 1e3 * seconds for name, seconds in parts.items()}
        for row in punctual
        for quantile, parts in row.get("circuit_delay_wall_s", {}).items()
    ]
    lost = [row for row in rows if row.get("controller_restart_wall_s") is not None]
    if lost:
        yield Table("The controller that died and its successor, in seconds of the wall clock", _LOST, lost)
    if delays:
        title = "From a request for circuits to the first payload over them, and its parts, in ms of the wall clock"
        yield Table(title, _DELAYS, delays)


_UNFINISHED = "This point was not finished."
TESTBED = published("opus-testbed-port")
_CALIBRATED = {"llama3-8b-16": "llama-forward", "pp-only": "deepseek-forward"}
"""Workloads whose compute time is fitted, and the calibration (``measure.published``)."""


def calibrated(rows: Sequence[Row], settings: Any) -> Iterator[str]:
    yield from (_CALIBRATED[name] for name in dict.fromkeys(row["workload"] for row in rows) if name in _CALIBRATED)


def _findings(rows: Sequence[Row], settings: Any) -> Iterator[str]:
    """How a step grows with the delay, and how the ports differ from those of the testbed whose step time is fitted."""
    for mode in dict.fromkeys(row["mode"] for row in rows):
        mine = [row for row in rows if row["mode"] == mode and not row.get("late")]
        found = slope_of(mine, "reconfiguration_delay_ms", "step_time_s")
        if found is not None:
            first, last = (each(row["reconfiguration_delay_ms"] for row in mine) for each in (min, max))
            grows = in_words(found.times(1e3))
            yield f"{mode}: a step grows by {grows} s per second of delay ({first:g} to {last:g} ms)."
    if settings.get("profile_steps"):
        yield from _learning(rows, settings["profile_steps"])
    yield from _stale(rows)
    fabric = settings.get("fabric", {})
    if any(calibrated(rows, settings)) and fabric:
        gbps = fabric["ports_per_gpu"] * (fabric["rate_gbps"] or DEFAULT_PORT_GBPS)
        yield (
            f"Ports: {gbps:g} Gb/s a GPU; {TESTBED.value:g} Gb/s assumed for the testbed of Opus ({TESTBED.label}), so "
            "the share of communication and the windows are not those of its steps."
        )


def _learning(rows: Sequence[Row], profile_steps: int) -> Iterator[str]:
    """Times of the steps in which mode provisioned learns the order of the phases, beside those of later steps."""
    for row in rows:
        times = row["step_times_s"][:profile_steps]
        if row["mode"] == "provisioned" and times and row["step_time_s"] is not None:
            yield (
                f"provisioned, {row['reconfiguration_delay_ms']:g} ms: {len(times)} steps that learn the order of the "
                f"phases took {', '.join(f'{time:.3f}' for time in times)} s, later ones {row['step_time_s']:.3f} s."
            )


def _stale(rows: Sequence[Row]) -> Iterator[str]:
    """Sentences on the cost of a step with a stale profile over the others, measured and by the model."""
    for row in rows:
        stale, other, model = (row.get(name) for name in ("stale_step_time_s", "step_time_s", "predicted_step_time_s"))
        if stale is not None and other is not None and model is not None:
            yield (
                f"{row['mode']}, {row['reconfiguration_delay_ms']:g} ms: a step with a stale profile took {stale:.3f} "
                f"s, others {other:.3f} s: it cost {stale - other:.3f} s once (model "
                f"{row['predicted_stale_step_time_s'] - model:.3f} s)."
            )


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.rails.figures import overhead as overheads
    from experiments.rails.figures import pooled_windows, sweep, window_cdf
    from measure.figures.step import gantt, link_throughput

    rows = recorded.rows
    punctual = [row for row in rows if not row.get("late")]
    yield Drawn("step-time", sweep(punctual), punctual)
    yield Drawn("overhead", overheads(punctual), punctual)
    pooled = pooled_windows(punctual, recorded.events, recorded.scale, left_out(recorded.manifest))
    yield Drawn("windows", window_cdf(punctual, pooled), punctual)
    of_number = {row["point"]: row for row in rows}
    for point, inside in measured_points(recorded.manifest, recorded.events, rows):
        row = of_number.get(point.number)
        for name, figure in (
            ("gantt", gantt(point, inside)),
            ("links", link_throughput(point, inside, recorded.events)),
        ):
            yield Drawn(f"{name}-{point.name}", figure, [row] if row else [], "" if row else _UNFINISHED)


REPORT = Report(
    tables=_tables,
    point=lambda row: f"{row['mode']} {row['reconfiguration_delay_ms']:g} ms{', late' if row.get('late') else ''}",
    calibrated=calibrated,
    findings=_findings,
    figures=_figures,
)


def measured_points(
    manifest: Mapping[str, Any], events: Sequence[Event], rows: Sequence[Row]
) -> list[tuple[Point, list[Event]]]:
    """The points with figures of their own, with their events: in every mode the point with the longest delay.

    Of repeats it is the one that the row shows.
    """
    scale, plans, groups = scale_of(manifest), plans_of(manifest), groups_of(manifest)
    predicted = {row["point"]: row["predicted_step_time_s"] for row in rows}
    chosen: dict[str, Event] = {}

    def rank(e: Event) -> tuple[bool, float, bool]:
        shown = e["point"] in predicted
        return shown or bool(e.get("stopped")), e["delay_s"], shown

    for e in events:
        if e.source == "run" and e.kind == "point" and e.end is not None and e["fabric"] in plans:
            best = chosen.get(e["mode"])
            if best is None or rank(e) >= rank(best):
                chosen[e["mode"]] = e
    found = []
    for e in chosen.values():
        point = Point(
            number=e["point"],
            mode=e["mode"],
            plan=plans[e["fabric"]],
            groups=groups,
            scale=scale,
            reconfiguration_delay_s=round(scale.real_s(e["delay_s"]), 9),
            link_recovery_s=round(scale.real_s(e.get("link_recovery_s", 0.0)), 9),
            predicted_step_time_s=predicted.get(e["point"]),
        )
        assert e.end is not None
        found.append((point, within(events, e.t, e.end)))
    return found
