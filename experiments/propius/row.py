"""The row of the Propius experiment; and runs of one point with several seeds as one, with intervals of 95 %."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, stdev
from typing import Annotated, Any, ClassVar

from measure.metrics.independent import student_t
from measure.results.row import MeasuredRow, Row


@dataclass(kw_only=True)
class PropiusRow(MeasuredRow):
    """One run of one study; fields of other studies are empty. Columns ``authors_..`` are the authors' own figures.

    ``layer`` says how the row came about: ``packets`` (emulated) or ``virtual`` (the same policies, managers and
    clients in virtual time, no packets, no verdict).
    """

    given: ClassVar[frozenset[str]] = MeasuredRow.given | {
        *("clients", "regions", "managers", "jobs", "rounds", "delay_ms", "loss_percent"),
    }

    study: Annotated[str, "study of the row"] = ""
    layer: Annotated[str, "packets or virtual"] = "packets"
    policy: Annotated[str | None, "policy that offers jobs to clients"] = None
    mode: Annotated[str | None, "parameter servers: authors or fixed"] = None
    topology: Annotated[str | None, "star or tree"] = None
    case: Annotated[str | None, "what is measured or what went wrong, in words"] = None
    finding: Annotated[str | None, "sentence about all rows of the study"] = None
    clients: Annotated[int | None, "number of clients"] = None
    regions: Annotated[int | None, "number of regions"] = None
    managers: Annotated[int | None, "number of client managers"] = None
    jobs: Annotated[int | None, "number of jobs"] = None
    rounds: Annotated[int | None, "rounds of each job"] = None

    jct_s: Annotated[float | None, "time from registration to the last round, mean; empty if a job starved"] = None
    predicted_jct_s: Annotated[float | None, "the same by the model in virtual time"] = None
    authors_jct_s: Annotated[float | None, "the same of the authors' run (propius-jct-*)"] = None
    authors_kind: Annotated[str | None, "whose figures they are, and their kind"] = None
    jct_by_job: Annotated[Mapping[str, float], "time of each finished job, by name"] = field(default_factory=dict)
    finished: Annotated[int | None, "jobs that finished"] = None
    starved: Annotated[str | None, "names of the jobs that did not finish"] = None
    run_s: Annotated[float | None, "length of the run"] = None

    utilisation: Annotated[float | None, "busy time of the clients with work over the length of the run"] = None
    active_share: Annotated[float | None, "the same over all clients that checked in"] = None
    bindings_per_s: Annotated[float | None, "clients bound to a job per second"] = None
    predicted_bindings_per_s: Annotated[float | None, "the same by the model"] = None
    useful_per_s: Annotated[float | None, "clients of completed rounds per second"] = None
    predicted_useful_per_s: Annotated[float | None, "the same by the model"] = None
    scheduling_delay_s: Annotated[float | None, "request until enough clients are bound, mean of rounds"] = None
    predicted_scheduling_delay_s: Annotated[float | None, "the same by the model"] = None
    authors_scheduling_delay_s: Annotated[float | None, "the same (propius-scheduling-*)"] = None
    response_time_s: Annotated[float | None, "enough clients bound until the round is complete, mean of rounds"] = None
    predicted_response_time_s: Annotated[float | None, "the same by the model"] = None
    authors_response_time_s: Annotated[float | None, "the same (propius-response-*)"] = None
    rounds_repeated: Annotated[int | None, "rounds that a time-out started again"] = None
    predicted_rounds_repeated: Annotated[int | None, "the same by the model"] = None

    checkin_wall_s: Annotated[float | None, "processor time of a client manager per check-in, in wall-clock s"] = None

    root_bytes: Annotated[int | None, "bytes that the root's port sent, without headers, in emulated bytes"] = None
    predicted_root_bytes: Annotated[int | None, "the same by the law of the topology"] = None
    root_received_bytes: Annotated[int | None, "bytes that the root's port received, in emulated bytes"] = None
    updates_acknowledged: Annotated[int | None, "updates that a server acknowledged to a client"] = None
    updates_lost: Annotated[int | None, "acknowledged updates that no sum and no report holds"] = None
    updates_twice: Annotated[int | None, "updates that are in a sum more than once"] = None
    updates_late: Annotated[int | None, "acknowledged updates reported as too late for their round"] = None
    wrong_sums: Annotated[int | None, "sums that differ from the recomputed one in a bit"] = None
    sums_checked: Annotated[int | None, "sums that were recomputed"] = None
    kills: Annotated[int | None, "processes that were killed"] = None

    delay_ms: Annotated[float | None, "one-way delay of the link, or reconfiguration delay of the trunk"] = None
    loss_percent: Annotated[float | None, "random loss of the trunk links"] = None
    time_s: Annotated[float | None, "time of a round"] = None
    predicted_time_s: Annotated[float | None, "the same by the formula"] = None


def real_mb(name: str) -> Callable[[Row], float | None]:
    """A function that reads emulated bytes of a row as MB of the real system."""

    def read(row: Row) -> float | None:
        return None if row[name] is None else row[name] / (row["rate_scale"] * row["time_scale"]) / 1e6

    return read


SAME = ("layer", "policy", "mode", "topology", "clients")
"""Runs with equal values of these differ in their seed alone."""


@dataclass(frozen=True)
class Interval:
    """The mean of ``count`` values and its 95 % interval; the interval is the mean itself for a single value."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (f" ({self.low:.2f} to {self.high:.2f})" if self.count > 1 else "")


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval (Student's t) of at least one value."""
    mean, count = fmean(values), len(values)
    if count == 1:
        return Interval(mean, mean, mean, 1)
    half = student_t(count - 1) * stdev(values) / sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def merged(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row for the runs that differ in their seed alone: numbers are means, ``seeds`` is the number of runs.

    ``starved`` lists the jobs that did not finish in one of them or more; ``faithful`` is that of all together. Of
    completion times measured and predicted, only those of seeds count that have both: where jobs starve in some runs,
    the others are no sample of all.
    """
    found = []
    for mine in _groups(rows):
        one: dict[str, Any] = {key: _mean([row[key] for row in mine]) for key in mine[0]}
        if any(row["jct_s"] and row["predicted_jct_s"] for row in mine):
            both = [row for row in mine if row["jct_s"] and row["predicted_jct_s"]]
            one |= {key: _mean([row[key] for row in both]) for key in ("jct_s", "predicted_jct_s")}
        one |= {key: mine[0][key] for key in ("study", *SAME)} | {"seeds": len(mine)}
        names = dict.fromkeys(name for row in mine for name in (row["starved"] or "").split(", ") if name)
        one["starved"] = ", ".join(names) or None
        judged = [row["faithful"] for row in mine]
        one["faithful"] = None if None in judged else all(judged)
        found.append(one)
    return found


def ratios(rows: Sequence[Row], column: str, above: str, below: str) -> dict[int, Interval]:
    """By number of clients: ``column`` of policy ``above`` over that of ``below``, seed by seed, with its interval."""
    value = {(row["policy"], row["clients"], row["seed"]): row[column] for row in rows}
    found: dict[int, list[float]] = {}
    for (policy, clients, seed), top in value.items():
        bottom = value.get((below, clients, seed))
        if policy == above and top and bottom:
            found.setdefault(clients, []).append(top / bottom)
    return {clients: interval(each) for clients, each in sorted(found.items())}


def _groups(rows: Sequence[Row]) -> Iterator[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in SAME), []).append(row)
    yield from groups.values()


def _mean(values: Sequence[Any]) -> Any:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return fmean(numbers) if numbers else values[0]
