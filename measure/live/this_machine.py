"""The calibration that a run on this machine uses: the saved one, or else conservative values."""

from __future__ import annotations

import os
from functools import cache

from measure.live.calibration import Calibration, Datapath, default_calibration, load_calibration
from railyard.errors import MachineError


def this_machine() -> Calibration:
    """The saved calibration; without one, conservative values for the datapaths that the kernel has.

    ``MachineError`` for a file that this version does not read.
    """
    return load_calibration() or default_calibration(_available())


@cache
def _available() -> tuple[Datapath, ...]:
    """The datapath that ``auto`` takes here, and ovs; without root only ovs, since the kernel cannot be asked."""
    if os.geteuid() != 0:
        return ("ovs",)
    from topos.kernel.fastpath.bpf_forwarder import BpfForwarder

    try:
        BpfForwarder(-1, ports=1).close()
    except MachineError:
        return ("ovs",)
    return "bpf", "ovs"
