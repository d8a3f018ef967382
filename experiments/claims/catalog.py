"""The claims of this project, by system. A new claim goes to the module of its system, a new run to ``runs``."""

from __future__ import annotations

from experiments.claims.circuits import COLLECTIVES, PIP, PROPIUS, STRAGGLAR
from experiments.claims.claim import Claim
from experiments.claims.emulator import EMULATOR
from experiments.claims.opus import OPUS
from experiments.claims.racks import LUMION, MORPHLUX
from experiments.claims.runs import RUNS

__all__ = ["CLAIMS", "RUNS"]

CLAIMS: tuple[Claim, ...] = (*OPUS, *LUMION, *STRAGGLAR, *COLLECTIVES, *MORPHLUX, *PIP, *PROPIUS, *EMULATOR)
