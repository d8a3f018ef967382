"""The benchmarks by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from commands.bench import Measurement
from commands.bench.bed import Bed
from commands.bench.collectives import (
    LARGE,
    SCALING,
    against_bounds,
    highest_aggregate,
    ring_all_reduce,
    shortest_slot,
    slots,
    stragglar,
)
from commands.bench.control import barrier_64, rewire_64
from commands.bench.dark import dark_times, shortest_dark_time
from commands.bench.fabric import (
    bring_up,
    delay,
    idle_fabric,
    links,
    links_beside_load,
    loss,
    plain_streams,
    round_trip,
)
from commands.bench.model import model_parts, slopes
from commands.bench.runs import quick_runs, watched_runs
from commands.bench.swap import map_change, swap_64

Measure = Callable[[Bed], list[Measurement]]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: its description in a line, and the functions that measure it one after another, with root.

    Of several datapaths each part is measured before the next part begins. A benchmark that is ``large`` runs only if
    it is named.
    """

    says: str
    parts: tuple[Measure, ...]
    large: bool = False


BENCHES: dict[str, Benchmark] = {
    "links": Benchmark(
        "16 hosts x 100 Mb/s in a ring: goodput of each against line rate, beside TCLink, and beside a busy core",
        (links, links_beside_load),
    ),
    "allreduce": Benchmark(
        "ring all-reduce against line rate at 8 to 64 hosts", tuple(partial(ring_all_reduce, size=s) for s in SCALING)
    ),
    "large-allreduce": Benchmark(
        "the same at 128 to 512 hosts", tuple(partial(ring_all_reduce, size=s) for s in LARGE), large=True
    ),
    "collectives": Benchmark(
        "every collective at 16 ranks and 4 MiB against its own alpha-beta bound", (against_bounds,)
    ),
    "stragglar": Benchmark("Ring / StragglAR after arrival by ranks, and their break-even delay", (stragglar,)),
    "ceiling": Benchmark(
        "the highest aggregate rate of plain streams, beside TCLink, and of an all-reduce within 1.05",
        (plain_streams, highest_aggregate),
    ),
    "rtt": Benchmark("round-trip time of a ping of 64 bytes over a circuit, beside stock Mininet", (round_trip,)),
    "idle": Benchmark("processor use of an idle fabric of 128 GPUs with its controller", (idle_fabric,)),
    "bringup": Benchmark("128 GPUs, 256 links, 24 switches: up and down, beside stock Mininet", (bring_up,)),
    "rewire": Benchmark("64 ports rewired: request to barrier reply, and to the answer", (rewire_64,)),
    "swap": Benchmark(
        "64 ports rewired: OpenFlow request to packets following, in-band; the change of the map alone",
        (swap_64, map_change),
    ),
    "barrier": Benchmark("64 members ready: first request to last ack, no switch involved", (barrier_64,)),
    "dark": Benchmark("in-band dark time against the configured one", (dark_times,)),
    "slots": Benchmark("slots of 10 ms with 1 ms of delay: duty cycle, losses, misdelivery", (slots,)),
    "floor": Benchmark(
        "the shortest dark time and the shortest slot shown within 5 percent", (shortest_dark_time, shortest_slot)
    ),
    "delay": Benchmark("error of link delays of 5, 20, 50 ms on 8 links that carry 20 Mb/s each", (delay,)),
    "loss": Benchmark("packets that lossy links lose against the share asked for, 0.1 to 5 percent", (loss,)),
    "quick": Benchmark("run.sh --quick over and over: runs with faithful points alone", (quick_runs,), large=True),
    "watch": Benchmark(
        "step times of 16 ranks with --watch and an open page against those without, in pairs",
        (watched_runs,),
        large=True,
    ),
    "model": Benchmark(
        "every row of the experiments against its prediction: 2 percent, 4 at 64 ranks", (model_parts,), large=True
    ),
    "slopes": Benchmark("step time against delay: smoke, Llama and PP-only jobs, and the stall law", (slopes,)),
}
