"""Figure of a PyTorch script: loss and step time by step."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from measure.figures import looks
from measure.figures.curves import Rows
from measure.figures.plot import Plot, figure_of

_BY_STEP = partial(
    Plot,
    "step",
    series=lambda row: f"{row['mode']}, {row['reconfiguration_delay_ms']:g} ms",
    looks=lambda rows: {
        f"{row['mode']}, {row['reconfiguration_delay_ms']:g} ms": looks.MODES[row["mode"]].named(
            f"{row['mode']}, {row['reconfiguration_delay_ms']:g} ms"
        )
        for row in rows
    },
    joined=True,
)


def losses(steps: Rows) -> Figure | None:
    """The loss of each step and below it the time that it took, with that of the model as lines; None without both."""
    took = _BY_STEP("step_time_s", ("step of the script", "step time (s)"), model="predicted_step_time_s", height=1.8)
    loss = _BY_STEP("loss", ("step of the script", "loss"), lambda rows: f"{rows[0]['workload']}: loss", below=took)
    return figure_of(loss, [step for step in steps if step["loss"] is not None]) or figure_of(took, list(steps))
