"""Claims about Opus: what a reconfiguration costs a step, and what photonic rails cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.claims.claim import Claim, Tolerance
from experiments.claims.numbers import furthest, in_repeats, slope, value, where
from experiments.report import off_percent
from measure.published import published
from measure.results.row import Row

_AT_MS = 100.0
_LONG_MS = 200.0


def _step(rows: Sequence[Row], mode: str, key: str, delay_ms: float) -> float:
    swept = 0.0 if mode == "electrical" else delay_ms
    (row,) = (row for row in rows if row["mode"] == mode and row["reconfiguration_delay_ms"] == swept)
    return float(row[key])


def _cost_left(key: str) -> Callable[[Sequence[Row]], float | None]:
    """What provisioned steps cost over electrical ones, as a share of what steps on demand cost over them."""

    def number(rows: Sequence[Row]) -> float:
        packets, early, late = (_step(rows, mode, key, _LONG_MS) for mode in ("electrical", "provisioned", "on-demand"))
        return (early - packets) / (late - packets)

    return number


def _overhead(mode: str, delay_ms: float) -> Callable[[Sequence[Row]], float | None]:
    """By how many percent a predicted step is longer than on packet switches."""

    def number(rows: Sequence[Row]) -> float | None:
        steps = (_step(rows, each, "predicted_step_time_s", delay_ms) for each in (mode, "electrical"))
        return off_percent(*steps)

    return number


RAILS: tuple[Claim, ...] = (
    Claim(
        name="opus-model",
        system="Opus",
        says="Every step of the rail experiment takes as long as predicted; the worst measured / predicted is shown",
        run="rails",
        number=furthest("step_time_s", "predicted_step_time_s"),
        source="model",
        expected=1.0,
        tolerance=Tolerance(share=0.02),
        form=".3f",
    ),
    Claim(
        name="opus-slope",
        system="Opus",
        says="On demand a step of the Llama-3 job grows by six dark times, one for each phase change",
        run="rails",
        rows=where(mode="on-demand"),
        number=slope("reconfiguration_delay_ms", "step_time_s", 1e3),
        source="law",
        expected=published("opus-llama-phase-changes").value,
        tolerance=Tolerance(share=0.03),
        unit="s/s",
    ),
    Claim(
        name="opus-slope-authors",
        system="Opus",
        says="The authors' steps grow as fast between delays of 1 and 3 s",
        run="rails",
        rows=where(mode="on-demand"),
        number=slope("reconfiguration_delay_ms", "step_time_s", 1e3),
        source="opus-llama-slope-long",
        tolerance=Tolerance(share=0.03),
        unit="s/s",
        note="Between 250 ms and 1 s theirs grow more slowly (`opus-llama-slope`).",
    ),
    Claim(
        name="opus-provisioned",
        system="Opus",
        says="Circuits that are asked for in advance cost part of what they cost on demand, as the windows hide the "
        "rest; at a delay of 200 ms, both over packet switches",
        run="rails",
        number=in_repeats(_cost_left("step_time_s")),
        source="model",
        expected=in_repeats(_cost_left("predicted_step_time_s")),
        tolerance=Tolerance(points=0.1),
    ),
    Claim(
        name="opus-overhead",
        system="Opus",
        says="At a delay of 100 ms a step on demand is longer than on packet switches, as the authors measured it",
        run="rails-testbed",
        number=in_repeats(_overhead("on-demand", _AT_MS)),
        source="opus-llama-overhead",
        tolerance=Tolerance(points=1.0),
        unit="%",
        note="The model, at the rate of the testbed, over packet switches; theirs is over a step without a control "
        "plane, and 2.6 % of it are there without a delay already.",
    ),
    Claim(
        name="opus-128",
        system="Opus",
        says="At 100 ms, provisioned, the overhead is below that of the 128 GPUs of the abstract",
        run="rails-testbed",
        number=in_repeats(_overhead("provisioned", _AT_MS)),
        source="opus-128-overhead",
        tolerance=Tolerance(side="most"),
        unit="%",
        note="The model of another job, of 16 GPUs; the 128 GPUs have not been reproduced.",
    ),
    Claim(
        name="opus-cost",
        system="Opus",
        says="Rails of packet switches for 8,192 GPUs cost four times as much as photonic ones",
        run="fabric-cost",
        rows=where(gpus=8192, fabric="rail-optimized"),
        number=value("cost_ratio"),
        source="opus-cost",
        tolerance=Tolerance(share=0.05),
        note="With one optic a GPU, which is our assumption, and three tiers of switches; two tiers give less.",
    ),
    Claim(
        name="opus-power",
        system="Opus",
        says="They take over 23 times the power",
        run="fabric-cost",
        rows=where(gpus=8192, fabric="rail-optimized"),
        number=value("power_ratio"),
        source="opus-power",
        tolerance=Tolerance(side="least"),
        note="As for `opus-cost`.",
    ),
)
