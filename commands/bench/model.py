"""Runs against predictions: rows of all experiments beside the model, and step time against Opus (arXiv 2602.12521).

On-demand exposes every phase change of the critical path, so step time grows by their number times the delay: 2 for
the smoke job, 6 for the Llama job without overlap, 0 for a job with one phase. Provisioned hides delays inside its
windows: it is never slower than on-demand, and follows the stall law for the measured windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from commands.bench import Measurement, ModelRow, NotMeasured, at_most, not_measured
from commands.bench.bed import Bed, rows_of
from experiments.rails.experiment import Rails
from experiments.rails.settings import make_settings
from experiments.registry import find
from experiments.settings import validated
from measure.results.row import Row
from railyard.errors import RailyardError
from railyard.size import in_words

LIMIT, LIMIT_64 = 0.02, 0.04
"""Largest difference between a measured median and its prediction, as a share of it; the second at 64 ranks."""
RANKS = (4, 8, 16, 32, 64)
STEP = (("step_time_s", "predicted_step_time_s"),)
TRIAL = (("time_s", "predicted_time_s"),)
ARRIVED = (("after_arrival_s", "predicted_after_arrival_s"),)
"""From the last arrival of a rank, as nccl-tests measure."""
FAILOVER = (
    ("step_time_before_s", "predicted_step_time_before_s"),
    ("step_time_after_s", "predicted_step_time_after_s"),
)
_SEVERAL = ("ring", "bidirectional-ring", "direct", "tree", "double-binary-tree", "recursive-halving-doubling")
_LABELS = ("mode", "fabric", "tenant", "algorithm", "collective", "n", "bytes")


@dataclass(frozen=True)
class ModelPart:
    """Rows of one run: of which experiment, with which settings; the pairs of a measured field and its prediction."""

    experiment: str
    settings: Mapping[str, Any]
    fields: tuple[tuple[str, str], ...]
    limit: float = LIMIT

    def made(self, repeats: int, datapath: str) -> Any:
        """The experiment, which measures each of its points ``repeats`` times."""
        kind = find(self.experiment)
        given = {**self.settings, "datapath": datapath, "repeats": repeats}
        return kind(validated(kind.Settings, kind.adapt(given, given)))


def _rails(workload: str, modes: str, *delays: float) -> ModelPart:
    settings: dict[str, Any] = {"modes": modes.split(",")}
    settings |= {"workload": workload} if workload else {}
    settings |= {"delays_ms": list(delays)} if delays else {}
    return ModelPart("rails", settings, STEP)


PARTS: Mapping[str, ModelPart] = {
    "rails-electrical": _rails("", "electrical,one-shot"),
    "rails-on-demand": _rails("", "on-demand"),
    "rails-provisioned": _rails("", "provisioned"),
    "smoke": _rails("smoke", "electrical,on-demand"),
    "moe-smoke": _rails("moe-smoke", "electrical,on-demand"),
    **{
        f"collectives-{n}": ModelPart(
            "collective",
            {"ranks": n, "sizes": ["1M", "4M"] if n < 32 else ["4M"], "algorithms": list(_SEVERAL), "iterations": 3},
            ARRIVED,
            LIMIT if n < 64 else LIMIT_64,
        )
        for n in RANKS
    },
    **{
        kind.replace("_", "-"): ModelPart(
            "collective",
            {"collective": kind, "ranks": 16, "sizes": ["1M", "4M"], "algorithms": [algorithm], "iterations": 3},
            ARRIVED,
        )
        for kind, algorithm in (("all_gather", "ring"), ("reduce_scatter", "ring"), ("all_to_all", "pairwise"))
    },
    "stragglar-delay": ModelPart("straggler", {"studies": ["delay"], "iterations": 3}, TRIAL),
    "stragglar-step": ModelPart("straggler", {"studies": ["step"], "iterations": 3}, TRIAL),
    "stragglar-ranks": ModelPart("straggler", {"studies": ["ranks"], "ranks": [4, 8, 16], "iterations": 3}, TRIAL),
    "stragglar-circuits": ModelPart("straggler", {"studies": ["reconfiguration"], "iterations": 3}, TRIAL),
    "all-to-all": ModelPart(
        "all-to-all", {"studies": ["skew"], "slots_ms": [200.0], "policies": ["rotor", "valiant", "demand"]}, TRIAL
    ),
    "failover": ModelPart("failover", {}, FAILOVER),
}
"""Each takes less than about four minutes for one repeat."""


_USUAL = (None, "", 0, "all_reduce")
"""Values that are not in the name of a row."""


def _word(key: str, value: Any) -> str:
    return f"{value} ranks" if key == "n" else in_words(value) if key == "bytes" else str(value)


def compared(name: str, part: ModelPart, row: Row) -> list[ModelRow]:
    """The measured values of a row of ``part`` beside their predictions, where it has one."""
    labels = [key for key in _LABELS if key != "fabric" or "mode" not in row]
    words = [_word(key, row[key]) for key in labels if row.get(key) not in _USUAL]
    for key, unit in (("reconfiguration_delay_ms", "ms"), ("straggler_delay_s", "s late")):
        words += [f"{row[key]:.3g} {unit}"] if row.get(key) else []
    found = []
    for measured, predicted in part.fields:
        if row.get(predicted) is not None:
            after = ["after"] if "after" in measured and part.fields == FAILOVER else []
            label = " ".join([f"{name}:", *words, *after])
            n = max(1, int(row.get("repeats") or 1))
            measured_s, predicted_s = row.get(measured), row[predicted]
            off = None if measured_s is None or not predicted_s else measured_s / predicted_s - 1
            ok = off is not None and abs(off) <= part.limit
            one = ModelRow(label, off, "of the model", limit=part.limit, ok=ok)
            one.measured_s, one.predicted_s, one.n, one.faithful = measured_s, predicted_s, n, bool(row["faithful"])
            found.append(one)
    return found


def model_parts(bed: Bed) -> list[Measurement]:
    """Measure the parts that the bed asks for (None: all); one that cannot be measured gives its reason."""
    found: list[Measurement] = []
    for name in bed.parts or PARTS:
        part = PARTS[name]
        try:
            rows = rows_of(part.made(bed.repeats, bed.datapath), bed.repeats)
        except RailyardError as error:
            found.append(not_measured(f"model_{name}", error))
            continue
        found += [one for row in rows for one in compared(name, part, row)]
    return sorted(found, key=lambda row: (row.ok is True, -abs(row.value or 0.0)))


# ---- growth of step time with the delay ------------------------------------------------------------------------------


NEVER_SLOWER_SHARE = 0.01
"""Difference between two points of one machine that noise explains, as a share of the step time."""
STALL_LAW_SHARE = 0.10


def slopes(bed: Bed) -> list[Measurement]:
    """Slopes in seconds of step per second of delay; provisioned against on-demand and the stall law. Needs root."""
    smoke = _rows(bed, "smoke", ["electrical", "on-demand", "provisioned"], [50, 100, 200, 350, 500], 4)
    llama = _rows(bed, "llama3-8b-16", ["on-demand"], [50, 200, 500], 2)
    flat = _rows(bed, "pp-only", ["on-demand"], [50, 500], 2)
    return [
        _slope("smoke_on_demand_slope", smoke, 2.0, 0.05),
        _slope("llama_on_demand_slope", llama, 6.0, 0.10),
        _flat("pp_only_slope", flat),
        *_provisioned(smoke),
        Measurement("unfaithful_points", sum(not row["faithful"] for row in (*smoke, *llama, *flat)), "points"),
    ]


def _rows(bed: Bed, workload: str, modes: Sequence[str], delays_ms: Sequence[float], steps: int) -> list[Row]:
    values = {"workload": workload, "modes": modes, "delays_ms": delays_ms, "steps": steps, "datapath": bed.datapath}
    return rows_of(Rails(make_settings(values)))


def _fit(rows: Sequence[Row], mode: str) -> float:
    """Least-squares slope of step time over delay."""
    points = [(row["reconfiguration_delay_ms"] / 1e3, _step_s(row)) for row in rows if row["mode"] == mode]
    if len({delay for delay, _ in points}) < 2:
        raise NotMeasured(f"the slope of {mode}: its points have fewer than two delays")
    delays, times = np.array(points).T
    return float(np.polyfit(delays, times, 1)[0])


def _step_s(row: Row) -> float:
    """The step time of a point in seconds; ``NotMeasured`` if no step of the point was measured."""
    if not row["step_time_s"]:
        raise NotMeasured(
            f"the step time of {row['mode']} at {row['reconfiguration_delay_ms']:g} ms: no step was whole"
        )
    return float(row["step_time_s"])


def _slope(name: str, rows: Sequence[Row], expected: float, share: float) -> Measurement:
    """A measurement whose ``ratio`` is measured / expected and whose ``limit`` is the largest distance of it from 1."""
    found = _fit(rows, "on-demand")
    ratio = found / expected
    return Measurement(name, found, "s/s", expected, ratio, share, abs(ratio - 1) <= share)


def _flat(name: str, rows: Sequence[Row]) -> Measurement:
    """A measurement with an expected slope of 0: within 0.05 s per second of delay, and without reconfigurations."""
    found, limit = _fit(rows, "on-demand"), 0.05
    quiet = all(row["reconfigurations_per_step"] == 0 for row in rows)
    return Measurement(name, found, "s/s", 0.0, None, limit, abs(found) <= limit and quiet)


def _provisioned(rows: Sequence[Row]) -> list[Measurement]:
    """Measurements of provisioned against on-demand at the same delay, and against the stall law."""
    by_mode = {mode: {row["reconfiguration_delay_ms"]: row for row in rows if row["mode"] == mode}
               for mode in ("on-demand", "provisioned")}  # fmt: skip
    exposed, covered = by_mode["on-demand"], by_mode["provisioned"]
    if not covered or not all(delay in exposed and row.get("stall_law_step_time_s") for delay, row in covered.items()):
        raise NotMeasured("provisioned against on-demand and the stall law: a point of one of them is missing")
    slower = max(_step_s(row) / _step_s(exposed[delay]) for delay, row in covered.items())
    off = max(abs(_step_s(row) / row["stall_law_step_time_s"] - 1) for row in covered.values())
    return [
        at_most("provisioned_over_on_demand_worst", slower, "ratio", 1 + NEVER_SLOWER_SHARE),
        at_most("provisioned_off_stall_law_worst", off, "share", STALL_LAW_SHARE),
    ]
