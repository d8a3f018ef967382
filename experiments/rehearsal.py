"""Tries a policy before a run, and says so when it does not answer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from controllers.policies.catalog import rehearse
from topos.plan import FabricPlan
from workloads.program import Group

PATIENCE_S = 10.0


def try_policy(name: str, plan: FabricPlan, groups: Sequence[Group]) -> None:
    """``rehearse`` policy ``name``, with a line on standard error if that takes longer than ``PATIENCE_S``."""
    line = f"railyard: {name} has not answered for {PATIENCE_S:g} s; Ctrl-C stops waiting for it"
    timer = threading.Timer(PATIENCE_S, print, [line], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        rehearse(name, plan, groups)
    finally:
        timer.cancel()
