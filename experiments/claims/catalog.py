"""The claims of this project, and the runs that measure them."""

from __future__ import annotations

from experiments.claims.claim import Claim, MeasuredRun, Tolerance
from experiments.claims.numbers import furthest, share, slope, value, where
from measure.published import published

RUNS: tuple[MeasuredRun, ...] = (
    MeasuredRun("fabric-cost", "fabric-cost", 0.1, root=False, figures={"fabric-cost": "fabric-cost.png"}),
    MeasuredRun("mesh", "mesh --width 3 --height 3 --ports 8", 0.1, root=False),
    MeasuredRun("rails", "rails", 8, figures={"step-time": "step-time.png"}),
)
"""In the order in which they are measured: those that need no root first."""

CLAIMS: tuple[Claim, ...] = (
    Claim(
        name="opus-cost",
        system="Opus",
        says="Packet-switched rails of 8,192 GPUs cost four times as much as photonic ones",
        run="fabric-cost",
        rows=where(gpus=8192, fabric="rail-optimized"),
        number=value("cost_ratio"),
        source="opus-cost",
        tolerance=Tolerance(share=0.05),
        note="With one optic a GPU, which is our assumption; two tiers of switches give less.",
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
    ),
    Claim(
        name="pip-matchings",
        system="PIP",
        says="A mesh of 3 x 3 holds all 7 matchings in which 8 evenly spaced ports meet pairwise",
        run="mesh",
        number=share(where(routable=True)),
        source="law",
        expected=1.0,
        tolerance=Tolerance(),
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
        tolerance=Tolerance(share=0.05),
        unit="s per s",
    ),
    Claim(
        name="opus-model",
        system="Opus",
        says="Every step of the rail experiment takes as long as predicted; shown is the worst measured / predicted",
        run="rails",
        number=furthest("step_time_s", "predicted_step_time_s"),
        source="model",
        expected=1.0,
        tolerance=Tolerance(share=0.02),
        form=".3f",
    ),
)
