"""Benchmark of bring-up and tear-down of a large fabric, beside stock Mininet with ``TCLink``."""

from __future__ import annotations

import time
from typing import Any

from commands.bench import Measurement, not_measured
from commands.bench.bed import Bed
from railyard.errors import MachineError
from topos.rails import RailTopo

LEAST_UP_RATIO = 10.0
LEAST_DOWN_RATIO = 2.0
MOST_UP_S = 1.5
"""Largest time with bpf, with its programs attached."""
SHAPE: dict[str, Any] = {"servers": 16, "gpus": 8, "ports": 1, "fabric": "electrical", "scale_up": True}
"""128 GPUs on 8 rails and 16 scale-up switches: 256 links, 24 switches."""


def bring_up(bed: Bed, shape: dict[str, Any] = SHAPE) -> list[Measurement]:
    """Seconds until every link is up and every bridge forwards, and seconds of the tear-down; needs root.

    Railyard's time includes the construction of the ``Emulation`` and the start of its Open vSwitch; stock Mininet's
    time covers build and start on an Open vSwitch that is already running.
    """
    start = time.monotonic()
    net = bed.make(RailTopo(**shape))
    try:
        net.start()
        up_s = time.monotonic() - start
        size = f"{len(net.hosts)}_gpus"
        start = time.monotonic()
    finally:
        net.stop()
    down_s = time.monotonic() - start
    theirs, missing = {}, []
    try:
        theirs = bed.stock(shape)
    except MachineError as error:
        missing.append(not_measured(f"bring_up_{size}_stock", error))
    return [
        bed.at_most(f"bring_up_{size}", up_s, "s", MOST_UP_S),
        _faster(f"bring_up_{size}_than_stock", up_s, theirs.get("up_s"), LEAST_UP_RATIO),
        _faster(f"tear_down_{size}_than_stock", down_s, theirs.get("down_s"), LEAST_DOWN_RATIO),
        *missing,
    ]


def _faster(name: str, value_s: float, baseline_s: float | None, limit: float) -> Measurement:
    """A measurement whose ``limit`` is for the ratio: how many times faster than the baseline."""
    ratio = baseline_s / value_s if baseline_s is not None else None
    ok = ratio >= limit if ratio is not None else None
    return Measurement(name, value_s, "s", baseline_s, ratio, limit, ok)
