"""The row of the opus experiment: a step of one job in one case, as the model computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from measure.results.row import ResultRow


@dataclass(kw_only=True)
class OpusRow(ResultRow):
    """A step of one job in one case of a study; times are those of the real system."""

    study: Annotated[str, "the study"]
    job: Annotated[str, "name of the workload"]
    gpus: Annotated[int, "number of GPUs of the job"]
    mode: Annotated[str, "mode of the job"]
    delay_ms: Annotated[float, "reconfiguration delay"] = 0.0
    recovery_s: Annotated[float, "link recovery after a reconfiguration"] = 0.0
    port_gbps: Annotated[float, "rate of one of a GPU's ports"] = 0.0
    technology: Annotated[str, "kind of optical switch (study technologies)"] = ""
    ep: Annotated[int, "degree of expert parallelism (study experts)"] = 1
    placement: Annotated[str, "where the groups of experts lie (study experts): in servers or on rails"] = ""
    transition: Annotated[str, "dimensions before and after a window (study windows)"] = ""
    step_s: Annotated[float, "time of a step"]
    exposed_s: Annotated[float, "what the delays add to the step: over its own time without them"] = 0.0
    hidden_s: Annotated[float, "delays of the rank with the most, less the exposed time, at least 0"] = 0.0
    changes: Annotated[float, "reconfigurations in a step, of the rank with the most"] = 0.0
    utilisation: Annotated[float, "share of the step in which the rank with the most to compute computes"] = 0.0
    window_s: Annotated[float | None, "window between two phases of this transition, median"] = None
    windows_s: Annotated[Sequence[float], "every window of a step of this transition"] = ()
    cost_ratio: Annotated[float | None, "cost of rails of packet switches over that of photonic rails"] = None
    power_ratio: Annotated[float | None, "power of rails of packet switches over that of photonic rails"] = None
    authors: Annotated[float | None, "of the authors: exposed time (opus-llama-growth-*) or window (opus-windows)"] = (
        None
    )
    sensitivity: Annotated[
        dict[str, tuple[float, float]], "step with the least and the most of each assumed size, over the step"
    ] = field(default_factory=dict)


def spread(sensitivity: Mapping[str, Sequence[float]]) -> float | None:
    """The largest change of a step by an assumed size, as a share of it; None without assumptions."""
    return max((abs(ratio - 1) for both in sensitivity.values() for ratio in both), default=None)
