"""The benchmarks by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.bench import Measurement
from experiments.bench.bringup import bring_up
from experiments.bench.collectives import against_bounds, stragglar
from experiments.bench.control import barrier_64, rewire_64
from experiments.bench.dark import dark_time
from experiments.bench.links import links
from experiments.bench.ring_all_reduce import highest_aggregate, ring_scaling
from experiments.bench.slopes import slopes
from experiments.bench.wide_area import delay, loss


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: its description in a line, and the function that measures it, which needs root."""

    says: str
    measure: Callable[[], list[Measurement]]


BENCHES: dict[str, Benchmark] = {
    "links": Benchmark("16 hosts x 100 Mb/s in a ring: goodput of each against line rate, beside TCLink", links),
    "allreduce": Benchmark("ring all-reduce against line rate at 8 to 128 hosts", ring_scaling),
    "collectives": Benchmark("every collective at 16 ranks and 4 MiB against its own alpha-beta bound", against_bounds),
    "stragglar": Benchmark("Ring / StragglAR after arrival at 4, 8, 16 ranks, and their break-even delay", stragglar),
    "ceiling": Benchmark("the highest aggregate rate at which an all-reduce stays within 1.05", highest_aggregate),
    "bringup": Benchmark("128 GPUs, 256 links, 24 switches: up and down, beside stock Mininet", bring_up),
    "rewire": Benchmark("64 ports rewired: request to barrier reply, and to the answer", rewire_64),
    "barrier": Benchmark("64 members ready: first request to last ack, no switch involved", barrier_64),
    "dark": Benchmark("in-band dark time against the configured one", dark_time),
    "delay": Benchmark("error of link delays of 5, 20, 50 ms on 8 links that carry 20 Mb/s each", delay),
    "loss": Benchmark("packets that lossy links lose against the share asked for, 0.1 to 5 percent", loss),
    "slopes": Benchmark("step time against delay: smoke, Llama and PP-only jobs, and the stall law", slopes),
}
