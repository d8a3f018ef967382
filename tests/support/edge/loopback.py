"""An edge run over the loopback interface: one region, all servers in this process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from experiments.propius.data.clients import stratified
from experiments.propius.run import EdgeRun
from topos.edge_plan import EdgePlan, EdgeRegion


def loopback_run(folder: Path, size: int = 4, **others: Any) -> EdgeRun:
    """A run with a client and a leaf server whose addresses no other test has."""
    net = f"127.{random.randrange(1, 255)}.{random.randrange(255)}"
    region = EdgeRegion("region0", f"{net}.2", f"{net}.3", 2, (0,))
    plan = EdgePlan("electrical", 100.0, f"{net}.1", f"{net}.3", (region,))
    return EdgeRun(plan, (None,) * 4, folder, (), tuple(stratified(1, 1, 1)), size, **others)
