"""The row of a PyTorch script: that of a rail experiment, with the losses that the script printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated

from experiments.rails.row import RailRow

_LOSS = re.compile(
    r"\bstep\W{1,3}(\d{1,9})\b.{0,200}?\bloss\W{1,3}([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)\b", re.IGNORECASE
)


@dataclass(kw_only=True)
class TorchRow(RailRow):
    """One mode at one reconfiguration delay."""

    incarnation: Annotated[int, "the incarnation of the script that the numbers of steps are of"] = 0
    first_step: Annotated[int, "number that the script gives to the first of step_times_s"] = 0
    losses: Annotated[Mapping[int, float | None], "loss by the number of the step as printed, None for nan"] = field(
        default_factory=dict
    )
    loss: Annotated[float | None, "the last of them"] = None


def losses_in(lines: Iterable[str]) -> dict[int, float | None]:
    """The losses by step that ``lines`` such as ``step 3 loss 2.5`` tell: of a step that comes twice the last one."""
    matches = filter(None, map(_LOSS.search, lines))
    return {int(match[1]): loss if isfinite(loss := float(match[2])) else None for match in matches}
