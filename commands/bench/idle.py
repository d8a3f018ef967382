"""Benchmark of the processor time that a fabric takes while nothing is sent."""

from __future__ import annotations

import time

from commands.bench import Measurement, NotMeasured
from commands.bench.bed import Bed
from measure.live.processor import Processor

LIMIT_PERCENT = 3.0
SETTLE_S, SECONDS = 2.0, 6.0


def idle_fabric(bed: Bed) -> list[Measurement]:
    """Share of a core that all processes of an idle fabric of 128 GPUs and its controller use, in percent; needs root.

    The processes are those that the run has registered, with the controller. The fabric is given ``SETTLE_S`` seconds
    after its start.
    """
    with bed.controlled(servers=16, gpus=8, ports=1, scale_up=True) as (net, controller):
        pids = sorted({controller.pid, *(child.pid for child in net.run.children() if child.alive)})
        time.sleep(SETTLE_S)
        processor, began = Processor(pids), time.monotonic()
        time.sleep(SECONDS)
        load = processor.read(time.monotonic() - began)
        net.check()
        ended = controller.process.poll() is not None
    if ended or load.processes is None:
        raise NotMeasured("the processor use of an idle fabric: its controller has ended")
    name = f"idle_128_gpus_{len(pids)}_processes"
    return [bed.at_most(name, load.processes * 100, "% of a core", LIMIT_PERCENT, LIMIT_PERCENT)]
