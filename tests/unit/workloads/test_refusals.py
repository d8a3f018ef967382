from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from captures import TALK, A, B, capture, packet
from msccl_texts import SWAP
from pytorch_traces import RECORD
from refusals import of_file, refusals
from training_steps import changed_recipe

from railyard.size import parse_size
from topos.describe import plan
from topos.kernel.namespaces import HostEnd
from topos.rails import RailTopo
from workloads.catalog import job_keys, load_workload, make_workload
from workloads.check import check
from workloads.collectives.algorithms import ring, straight_all_to_all, valiant_all_to_all
from workloads.collectives.catalog import schedule
from workloads.collectives.circuits import circuit_uses
from workloads.formats.detect import read_workload_file
from workloads.formats.layer_text import parse_layers
from workloads.formats.layers import make_plan, read_layers, unit_of
from workloads.formats.msccl_reader import parse_msccl, read_msccl
from workloads.stragglers.background import Background
from workloads.stragglers.detector import Detector
from workloads.stragglers.injection import Replay, parse_injection
from workloads.training.ranks import Parallelism, groups, spread
from workloads.training.recipe import make_recipe
from workloads.training.step import one_f_one_b, training_job

SMALL: dict[str, Any] = {
    "model": {"layers": 8, "hidden": 64, "sequence": 32, "heads": 4, "vocabulary": 100},
    "parallelism": {"tp": 2, "pp": 2, "dp": 2},
    "batch": {"local_batch": 4, "microbatch": 1},
    "compute": {"forward_ms": 10},
    "fabric": {"gpus_per_server": 2},
}
EXPERTS: dict[str, Any] = {
    "name": "small",
    "model": {"layers": 2, "hidden": 64, "sequence": 32, "heads": 4, "experts": 8, "top_k": 2},
    "parallelism": {"ep": 4},
    "batch": {"local_batch": 1, "microbatch": 1},
    "compute": {"forward_ms": 1},
    "fabric": {"servers": 4, "gpus_per_server": 1},
}
END = HostEnd(0, "eth0", "10.0.0.1")
TEXTS = {
    "MICRO": "MICRO\n1\na -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 4096 1\n",
    "HYBRID": "HYBRID_TRANSFORMER model_parallel_NPU_group: 2\n1\na -1 1 ALLREDUCE 64 1 NONE 0 1 ALLREDUCE 4096 1\n",
    "SWAP": SWAP,
}


def many_hosts() -> Iterator[bytes]:
    """A packet each from 4,100 hosts."""
    head, tail = bytes(packet(0, A, B, 4)).split(socket.inet_aton(A))
    yield from (head + socket.inet_aton(f"10.0.{n >> 8}.{n & 255}") + tail for n in range(4100))


CAPTURES: dict[str, Callable[[], bytes]] = {
    "TALK": lambda: capture(TALK),
    "CUT TALK": lambda: capture(TALK)[:1200],
    "CUT TALK NG": lambda: capture(TALK, ng=True)[:1500],
    "SILENCE": lambda: capture([packet(0, A, B, 0, seq=1), packet(0, A, A, 100)]),
    "MANY": lambda: capture(many_hosts()),
}


def written(name: str, text: str | None) -> str:
    if text is not None:
        Path(name).write_bytes(CAPTURES[text]() if text in CAPTURES else TEXTS.get(text, text).encode("latin-1"))
    return name


def recipe(section: str, value: Any) -> None:
    """A small recipe with one key changed, or left out."""
    compute, fabric = {"tflops": 100}, {"servers": 4, "gpus_per_server": 1}
    data = SMALL | {"name": "small", "parallelism": {"pp": 2, "dp": 2}, "compute": compute, "fabric": fabric}
    name, _, key = section.partition(".")
    data[name] = {**data.get(name, {}), key: value} if key else value
    make_workload(make_recipe({name: value for name, value in data.items() if value is not None}, "my.yaml"))


def layers(
    header: str = "DATA",
    layers: tuple[str, ...] = ("a -1 1 NONE 0 2 NONE 0 3 ALLREDUCE 40 4",),
    ranks: int | None = 4,
    unit: str | None = "s",
    mp: int | None = None,
) -> None:
    file = parse_layers("\n".join([header, str(len(layers)), *layers]) + "\n", "x.txt")
    check(make_plan(file, unit_of(file, unit), ranks, mp).program())


def background(fabric: str = "electrical", **options: Any) -> Background:
    return Background.on(plan(RailTopo(servers=3, gpus=2, fabric=fabric)), dict.fromkeys(range(6), 0), **options)


test_refusals = refusals(
    Path(__file__).with_name("refusals.yaml"),
    {
        "replayed gaps": lambda text, unit=None: Replay.read(Path(written("gaps", text)), unit),
        "file of gaps": lambda name: Replay.read(Path(name)),
        "injection": parse_injection,
        "straggler of ranks": lambda n, rank: parse_injection("fixed:1").delays(n, 1, rank, 0),
        "background traffic": background,
        "rate of background traffic": lambda **options: Background(END, END, mtu=9000, **options),
        "detector": Detector,
        "arrivals at a detector of 4": lambda *arrivals: Detector(4).observe(arrivals),
        "recipe": of_file("my.yaml", recipe),
        "sizes of a recipe": recipe,
        "recipe with experts": lambda **model: make_recipe(
            {**job_keys("moe-smoke"), "name": "experts", "model": {**EXPERTS["model"], "experts": 4, **model}}
        ),
        "workload with experts": lambda **sections: make_workload(
            make_recipe({**EXPERTS, **{name: {**EXPERTS[name], **values} for name, values in sections.items()}})
        ),
        "training step": lambda **changes: changed_recipe(SMALL, **changes),
        "groups of a training step": lambda servers, gpus_per_server, **sizes: groups(
            Parallelism(**sizes), servers=servers, gpus_per_server=gpus_per_server
        ),
        "spread group": spread,
        "pipeline": one_f_one_b,
        "training job": training_job,
        "workload": lambda name, text=None, **options: load_workload(written(name, text), **options),
        "workload file": lambda name, text=None, **options: read_workload_file(Path(written(name, text)), **options),
        "record": lambda old, new: load_workload(written("job.yaml", RECORD.replace(old, new, 1))),
        "layer file": lambda text: parse_layers(text, "x.txt"),
        "program of layers": layers,
        "layers of a file": lambda name: read_layers(Path(name), ranks=2),
        "MSCCL algorithm": lambda old="", new="", text=None: parse_msccl(text or SWAP.replace(old, new, 1), "own.xml"),
        "MSCCL file": read_msccl,
        "size": parse_size,
        "schedule": schedule,
        "circuits of a schedule": lambda *of: circuit_uses(schedule(*of)),
        "ring": ring,
        "straight all-to-all": straight_all_to_all,
        "Valiant all-to-all": valiant_all_to_all,
    },
)
