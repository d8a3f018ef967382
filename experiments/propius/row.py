"""The row of the Propius experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

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
    useful_per_s: Annotated[float | None, "clients of completed rounds per second"] = None
    scheduling_delay_s: Annotated[float | None, "request until enough clients are bound, mean of rounds"] = None
    predicted_scheduling_delay_s: Annotated[float | None, "the same by the model"] = None
    authors_scheduling_delay_s: Annotated[float | None, "the same (propius-scheduling-*)"] = None
    response_time_s: Annotated[float | None, "enough clients bound until the round is complete, mean of rounds"] = None
    predicted_response_time_s: Annotated[float | None, "the same by the model"] = None
    authors_response_time_s: Annotated[float | None, "the same (propius-response-*)"] = None
    rounds_repeated: Annotated[int | None, "rounds that a time-out started again"] = None

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
