"""Tables, findings and figures of recoveries, with published values beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.text import Text

from experiments.racks.row import CIRCUIT_FABRICS, CIRCUITS, MIGRATE, NEIGHBOUR, RAILS, SLOWDOWN
from experiments.report import FAITHFUL, Cell, Column, Drawn, Recorded, Table, yes_or_no
from measure.published import published
from measure.results.row import Row
from railyard.digits import significant

REWIRING = published("migration-rewiring")
_BEFORE_CIRCUITS = ("detect", "decide", "rewire")
_MOST_RECOVERIES = 24
_CIRCUITS_TITLE = (
    "From the chip's death to new circuits or routes (s): detect until the controller counts it as dead, "
    "decide until the policy has chosen the spare, rewire until circuits or routes are up"
)
_RESTART_TITLE = (
    "From there to the end of the first step (s): launch and fork of new agents, copy of the checkpoint, library, data "
    "and load at start-up, start of all ranks, first step; the outage is all parts from the chip's death on"
)
_BETWEEN_BEATS = "; least and most depend on when the chip dies between two heartbeats"


def fault_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows of faults, neighbours and predicted recoveries."""
    return [row for row in rows if "tenant" in row]


def point_name(row: Row) -> str:
    return f"{row['fabric']}, tenant {row['tenant']}, {row['event']}"


def recovery_tables(rows: Sequence[Row]) -> Iterator[Table]:
    """Tables of the parts of each recovery, measured above predicted, and of step times before and after."""
    rows = fault_rows(rows)
    lines = [line for row in rows if row["event"] != NEIGHBOUR for line in _lines(row)]
    if lines:
        between_beats = "" if any(row["state"] for row in rows) else _BETWEEN_BEATS
        yield Table(_CIRCUITS_TITLE, _CIRCUITS_COLUMNS, lines)
        yield Table(_RESTART_TITLE + between_beats, _RESTART_COLUMNS, lines)
    yield Table("Step times before and after the fault (s)", _STEP_COLUMNS, rows)


def _lines(row: Row) -> Iterator[Row]:
    """The lines of a recovery: measured, and below it the model."""
    if row["state"]:
        yield {**row, **dict(row["breakdown"])}
    if row["predicted_breakdown"]:
        parts = dict(row["predicted_breakdown"])
        circuits_s = sum(parts[name] for name in _BEFORE_CIRCUITS)
        model = {"state": "", "circuits_s": circuits_s, "outage_s": row["predicted_outage_s"], **parts}
        name = {"fabric": "", "event": Text("model", "dim")} if row["state"] else {**row, "event": None}
        yield {**name, **model}


def _bound(key: str) -> Callable[[Row], float | None]:
    """A bound of a predicted outage, in lines without a measured one above."""
    return lambda line: None if line["state"] else line.get(key)


_NAMES = (Column("fabric", "fabric", left=True), Column("event", "event", left=True))
_CIRCUITS_COLUMNS = (
    *_NAMES,
    *(Column(name, name, ".3f") for name in _BEFORE_CIRCUITS),
    Column("circuits\nup", "circuits_s", ".3f"),
    Column(f"MORPHLUX\n{CIRCUITS.heading}", "paper_circuits_s", "g"),
    Column("outcome", "state", left=True),
)
_RESTART_COLUMNS = (
    *_NAMES,
    Column("launch,\nfork", "launch", ".3f"),
    Column("check-\npoint", "checkpoint", ".2f"),
    *(Column(name, name, ".2f") for name in ("library", "data", "load")),
    Column("start", "start", ".3f"),
    Column("first\nstep", "first step", ".2f"),
    Column("outage", "outage_s", ".2f"),
    Column("least", _bound("predicted_outage_low_s"), ".2f"),
    Column("most", _bound("predicted_outage_high_s"), ".2f"),
)


def _after_to_before(row: Row) -> float | None:
    before, after = row["step_time_before_s"], row["step_time_after_s"]
    return after / before if before and after else None


def _derived_ratio(row: Row) -> str | None:
    return SLOWDOWN.shown() if row["derived_after_to_photonic_low"] else None


_STEP_COLUMNS = (
    Column("fabric", "fabric", left=True),
    Column("system", lambda row: row["system"].rpartition(":")[2], left=True, wide=True),
    Column("job", "tenant", left=True),
    Column("event", lambda row: None if row["event"] == "predicted" else row["event"], left=True, wide=True),
    Column("before", "step_time_before_s", significant),
    Column("before\nmodel", "predicted_step_time_before_s", significant),
    Column("after", "step_time_after_s", significant),
    Column("after\nmodel", "predicted_step_time_after_s", significant),
    Column("after /\nbefore", _after_to_before, ".3f", wide=True),
    Column("after /\nphotonic", "after_to_photonic", ".2f"),
    Column("model /\nphotonic", "predicted_after_to_photonic", ".2f", wide=True),
    Column(SLOWDOWN.heading, _derived_ratio, wide=True),
    Column("busbw before\nGB/s", "busbw_before_gb_s", ".3g", wide=True),
    Column("after\nGB/s", "busbw_after_gb_s", ".3g", wide=True),
    Column("rounds\ndone", "rounds_done", "d", wide=True),
    Column("lost\nsteps", "lost_steps", "d"),
    Column("sums\nok", lambda row: yes_or_no(row["checksum_ok"]), left=True),
    Column("reserve\nchips", lambda row: f"{row['reserve_chips']} of {row['chips']}", wide=True),
    Column("wrong\nhost", "misdelivered", "d", wide=True),
    FAITHFUL,
)


def recovery_findings(rows: Iterable[Row]) -> Iterator[Cell]:
    """Sentences on the time until circuits or routes were up, on stranded jobs, and on neighbours."""
    rows = fault_rows(rows)
    for row in rows:
        known, whole = dict(row["breakdown"]), row["circuits_s"]
        if whole:
            shares = ", ".join(f"{name} {known.get(name, 0.0) / whole:.0%}" for name in _BEFORE_CIRCUITS)
            what = "circuits" if row["fabric"] in (*CIRCUIT_FABRICS, RAILS) else "routes"
            yield f"{row['fabric']}: {what} up {whole:.3f} s after the fault ({shares})"
        elif row["reason"]:
            yield Text(f"{row['fabric']}: tenant {row['tenant']} is {row['state']}: {row['reason']}", "yellow")
    if any(row["paper_circuits_s"] and row["circuits_s"] for row in rows):
        yield (
            f"MORPHLUX: circuits up after {CIRCUITS.value:g} s ({CIRCUITS.label}). Its parts are others: "
            "mostly the programming of a mesh; detect and rewire here are settings."
        )
    if any(row["derived_after_to_photonic_low"] and row["after_to_photonic"] for row in rows):
        yield f"after / photonic: {SLOWDOWN.shown()} is {SLOWDOWN.label}, from LUMION and MORPHLUX; neither gives it."
    if any(row["fabric"] == MIGRATE and row["circuits_s"] for row in rows):
        yield f"{MIGRATE}: the time to rewire the OCS between racks is a setting ({REWIRING.label})."
    for row in rows:
        if row["change"] is not None:
            during = row["step_time_during_s"]
            outage = "" if during is None else f", {during:.3f} s during the outage"
            yield f"{row['fabric']}: step time of tenant {row['tenant']} changed by {row['change']:+.1%}{outage}"


def recovery_figures(recorded: Recorded) -> Iterator[Drawn]:
    """Figures of throughput over time, parts of the recoveries, step times, and the first recovery's timeline."""
    from experiments.racks.figures import recovery_breakdown, recovery_timeline, step_times, throughput_over_time
    from experiments.racks.throughput import fabric_runs

    rows = fault_rows(recorded.rows)
    faults = [row for row in rows if row["breakdown"]]
    runs = list(fabric_runs(recorded.events, rows, recorded.scale)) if rows else []
    yield Drawn("throughput", throughput_over_time(runs), rows)
    yield Drawn("recovery", recovery_breakdown(faults[:_MOST_RECOVERIES]), faults)
    yield Drawn("step-times", step_times(rows), rows)
    yield Drawn("recovery-timeline", recovery_timeline(faults[0]) if faults else None, faults[:1])
