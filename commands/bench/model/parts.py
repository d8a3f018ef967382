"""The runs whose rows benchmark ``model`` compares with their predictions, in parts that can be measured alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.registry import find
from experiments.settings import validated
from measure.results.row import Row
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
class Part:
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


def _rails(workload: str, modes: str, *delays: float) -> Part:
    settings: dict[str, Any] = {"modes": modes.split(",")}
    settings |= {"workload": workload} if workload else {}
    settings |= {"delays_ms": list(delays)} if delays else {}
    return Part("rails", settings, STEP)


PARTS: Mapping[str, Part] = {
    "rails-electrical": _rails("", "electrical,one-shot"),
    "rails-on-demand": _rails("", "on-demand"),
    "rails-provisioned": _rails("", "provisioned"),
    "smoke": _rails("smoke", "electrical,on-demand"),
    "moe-smoke": _rails("moe-smoke", "electrical,on-demand"),
    **{
        f"collectives-{n}": Part(
            "collective",
            {"ranks": n, "sizes": ["1M", "4M"] if n < 32 else ["4M"], "algorithms": list(_SEVERAL), "iterations": 3},
            ARRIVED,
            LIMIT if n < 64 else LIMIT_64,
        )
        for n in RANKS
    },
    **{
        kind.replace("_", "-"): Part(
            "collective",
            {"collective": kind, "ranks": 16, "sizes": ["1M", "4M"], "algorithms": [algorithm], "iterations": 3},
            ARRIVED,
        )
        for kind, algorithm in (("all_gather", "ring"), ("reduce_scatter", "ring"), ("all_to_all", "pairwise"))
    },
    "stragglar-delay": Part("straggler", {"studies": ["delay"], "iterations": 3}, TRIAL),
    "stragglar-step": Part("straggler", {"studies": ["step"], "iterations": 3}, TRIAL),
    "stragglar-ranks": Part("straggler", {"studies": ["ranks"], "ranks": [4, 8, 16], "iterations": 3}, TRIAL),
    "stragglar-circuits": Part("straggler", {"studies": ["reconfiguration"], "iterations": 3}, TRIAL),
    "all-to-all": Part(
        "all-to-all", {"studies": ["skew"], "slots_ms": [200.0], "policies": ["rotor", "valiant", "demand"]}, TRIAL
    ),
    "failover": Part("failover", {}, FAILOVER),
}
"""Each takes less than about four minutes for one repeat."""


@dataclass(frozen=True)
class Compared:
    """A measured value beside its prediction: ``name`` of the row, ``n`` measurements, ``faithful`` all of them."""

    name: str
    measured_s: float | None
    predicted_s: float | None
    n: int
    faithful: bool
    limit: float = field(default=LIMIT)

    @property
    def off(self) -> float | None:
        """Measured over predicted, less 1."""
        return None if self.measured_s is None or not self.predicted_s else self.measured_s / self.predicted_s - 1

    @property
    def ok(self) -> bool:
        """Whether the limit is kept."""
        return self.off is not None and abs(self.off) <= self.limit


_USUAL = (None, "", 0, "all_reduce")
"""Values that are not in the name of a row."""


def _word(key: str, value: Any) -> str:
    return f"{value} ranks" if key == "n" else in_words(value) if key == "bytes" else str(value)


def compared(name: str, part: Part, row: Row) -> list[Compared]:
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
            found.append(Compared(label, row.get(measured), row[predicted], n, bool(row["faithful"]), part.limit))
    return found
