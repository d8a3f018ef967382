"""What a script's ranks ask for on shapes alone is what as many real processes ask for: all of it, in order."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from checkout import ROOT

from workloads.program import Program
from workloads.pytorch.build import record_of
from workloads.pytorch.experts import Experts
from workloads.pytorch.fake_ranks import record_shapes
from workloads.pytorch.script_ranks import ScriptRank, ScriptRanks
from workloads.pytorch.trace import Call, RankTrace, read_trace

torch = pytest.importorskip("torch", reason="needs the extra torch (docs/torch.md)")
pytestmark = pytest.mark.filterwarnings("default")  # of scripts, and of PyTorch about itself

SCRIPTS = ROOT / "docs" / "examples" / "torch"
SMALL = "--dim 32 --heads 4 --kv-heads 2 --hidden 64 --vocab 64 --seq 16 --batch 2 --steps 3 --layers"
STEPS = 3
PATIENCE_S = 120.0


def real(script: str, arguments: list[str], world: int, folder: Path) -> dict[int, RankTrace]:
    """The traces of ``world`` processes, whose tensors gloo moves."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ranks = [
        ScriptRank(rank, world, rank, world, "127.0.0.1", port, "lo", str(folder / f"{rank}.out"),
                   trace=str(folder / f"{rank}.jsonl"), steps=STEPS)
        for rank in range(world)
    ]  # fmt: skip
    end = time.monotonic() + PATIENCE_S
    with ScriptRanks.start(script, arguments) as scripts:
        scripts.launch(ranks, [-1] * world)
        while len(scripts.ended) < world and time.monotonic() < end:
            select.select([scripts], [], [], 1.0)
            scripts.poll()
        assert (scripts.failures, set(scripts.ended.values())) == ([], {0})
    return {rank: read_trace(folder / f"{rank}.jsonl") for rank in range(world)}


def asked(trace: RankTrace) -> list[tuple[object, ...]]:
    """The calls of a rank, with all that the network sees of them."""
    told: list[tuple[object, ...]] = []
    for call in trace.calls:
        uneven = (call.sent, call.received) if len({*call.sent, *call.received}) > 1 else ()
        told.append((call.step, call.kind, call.ranks, call.bytes, call.dtype, call.peer, call.root, uneven))
    return told


def program(traces: Mapping[int, RankTrace], ranks: Iterable[int]) -> Program:
    """The program of the last step by the traces of ``ranks``, without names, which real processes do not know."""
    bare = {}
    for rank in ranks:
        events = (replace(e, module="", part="") if isinstance(e, Call) else e for e in traces[rank].events)
        bare[rank] = replace(traces[rank], events=tuple(events))
    return record_of(bare, "step", STEPS - 1, seconds=lambda work: 0.0, front_end_below=256).program()


def with_peers(traces: Mapping[int, RankTrace], rank: int) -> set[int]:
    """A rank and those that it sends to or receives from, and so on."""
    ranks: set[int] = set()
    left = {rank}
    while left:
        ranks |= left
        left = {call.peer for rank in left for call in traces[rank].calls if call.peer is not None} - ranks
    return ranks


CASES = [
    ("fsdp_tp.py", "2 --tp 2"),
    ("pp_dp.py", "8 --schedule InterleavedZeroBubble --pp 4"),
    ("moe.py", "2 --weights 5 1 1 1"),
]
MORE = [
    ("ddp.py", "4", 4),
    ("fsdp_tp.py", "2 --bfloat16 --recompute", 4),
    ("fsdp_tp.py", "2 --replicas 2", 4),
    ("pp_dp.py", "4", 4),
    ("pp_dp.py", "4 --data fsdp", 4),
    ("pp_dp.py", "4 --schedule Interleaved1F1B", 4),
    ("ddp.py", "4", 8),
    ("fsdp_tp.py", "2 --tp 4 --kv-heads 4", 8),
    ("fsdp_tp.py", "2 --tp 2 --replicas 2", 8),
    ("pp_dp.py", "4 --data fsdp --tp 2", 8),
    ("pp_dp.py", "4 --pp 4 --microbatches 8", 8),
    ("moe.py", "2 --ep 4 --weights 5 1 1 1", 8),
    ("fsdp_tp.py", "2", 16),
    ("pp_dp.py", "4 --data fsdp --tp 2 --pp 4", 16),
]


@pytest.mark.parametrize(
    ("script", "options", "world"),
    [
        *((script, options, 4) for script, options in CASES),
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in MORE),
    ],
)
def test_a_record_of_shapes_equals_what_real_processes_ask_for(
    script: str, options: str, world: int, tmp_path: Path
) -> None:
    path, arguments = str(SCRIPTS / script), f"{SMALL} {options}".split()
    truth = real(path, arguments, world, tmp_path)
    told, _, weights = f"{SMALL} {options}".partition(" --weights ")  # a record does not see how a script routes tokens
    experts = Experts(weights=(tuple(map(float, weights.split())),)) if weights else None
    recorded = record_shapes(path, told.split(), world, steps=STEPS, ranks=range(world), experts=experts)
    assert len(truth[0].calls) > STEPS
    for rank in range(world):
        assert asked(recorded[rank]) == asked(truth[rank]), f"rank {rank}"
    if "--tp" not in options:  # on shapes, the result of a tensor-parallel collective is waited for at once
        assert program(recorded, with_peers(recorded, 0)) == program(truth, range(world))
