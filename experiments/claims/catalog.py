"""The claims of this project, by system. A new claim goes to the module of its system, a new run to ``runs``."""

from __future__ import annotations

from experiments.claims.circuits import COLLECTIVES, LATE_RANK, ROTATION, TRUNK
from experiments.claims.claim import Claim
from experiments.claims.emulator import EMULATOR
from experiments.claims.opus import RAILS
from experiments.claims.racks import RECOVERY, SLICES
from experiments.claims.runs import RUNS

__all__ = ["CLAIMS", "RUNS"]

CLAIMS: tuple[Claim, ...] = (*RAILS, *RECOVERY, *LATE_RANK, *COLLECTIVES, *SLICES, *ROTATION, *TRUNK, *EMULATOR)
