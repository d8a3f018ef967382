"""The 1F1B pipeline: the order in which a stage runs the forward and backward passes of its microbatches.

Source: PipeDream-Flush as in Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC'21, section 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railyard.errors import ConfigError


@dataclass(frozen=True)
class Pass:
    """The forward or backward pass of one microbatch through one stage."""

    direction: Literal["forward", "backward"]
    microbatch: int

    def __str__(self) -> str:
        return f"{self.direction[0].upper()}{self.microbatch}"


def one_f_one_b(stage: int, stages: int, microbatches: int) -> tuple[Pass, ...]:
    """The passes of ``stage`` in order: fill, forward and backward passes alternately, drain.

    At most ``stages - stage`` microbatches are in flight. Raises ``ConfigError`` for fewer than one microbatch.

    >>> [str(p) for p in one_f_one_b(stage=0, stages=2, microbatches=2)]
    ['F0', 'F1', 'B0', 'B1']
    """
    if microbatches < 1:
        raise ConfigError(f"must be at least 1, not {microbatches}", key="microbatches")
    if not 0 <= stage < stages:
        raise ConfigError(f"stage {stage} is outside a pipeline of {stages}", key="parallelism.pp")
    fill = min(stages - stage - 1, microbatches)
    order = [Pass("forward", m) for m in range(fill)]
    for m in range(microbatches - fill):
        order += [Pass("forward", fill + m), Pass("backward", m)]
    order += [Pass("backward", m) for m in range(microbatches - fill, microbatches)]
    return tuple(order)
