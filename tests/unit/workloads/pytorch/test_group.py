"""The process group of a rank: results are gloo's, whoever carries them, and traces hold what was asked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch (docs/torch.md)")

from script_jobs import EXAMPLES, SMALL, carried, plain_gloo, run_ranks, traces  # noqa: E402

from workloads.pytorch.script_ranks import ScriptRanks  # noqa: E402
from workloads.pytorch.trace import StepEnd, Wait  # noqa: E402

JOBS = [
    "ddp.py",
    pytest.param("pp_dp.py --pp 2 --microbatches 4", marks=pytest.mark.thorough),
    pytest.param("fsdp_tp.py --tp 2", marks=pytest.mark.thorough),
    pytest.param("moe.py", marks=pytest.mark.thorough),
]
STEPS, WORLD = 3, 4

ALL_KINDS = """
import sys
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("nccl", device_id=None)
rank, world = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "gloo"
pair = dist.new_group([0, 1], backend="nccl")
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)


def show(name, *tensors):
    print(name, *(tensor.float().flatten().tolist() for tensor in tensors))


for step in range(4):
    base = torch.arange(12.0) + 100 * step + 10 * rank
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32):
        x = base.to(dtype)
        dist.all_reduce(x)
        x += 1  # at once
        show(str(dtype), x)
    x = base.view(3, 4).t().clone(memory_format=torch.preserve_format)
    assert not x.is_contiguous()
    works = [dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True), dist.all_reduce(base, async_op=True)]
    for work in works:
        work.wait()
    x.mul_(2)
    base.mul_(2)
    show("async", x, base)
    parts = [torch.zeros(12) for _ in range(world)]
    dist.all_gather(parts, base)
    whole = torch.zeros(12 * world)
    dist.all_gather_into_tensor(whole, base)
    own = torch.zeros(12)
    dist.reduce_scatter_tensor(own, whole)
    show("gathered", *parts, whole, own)
    dist.reduce_scatter(own, parts)
    with dist._coalescing_manager():
        dist.all_reduce(own)
        dist.all_reduce(whole)
    outputs = torch.zeros(3 * world), torch.zeros(2 * world)
    with dist._coalescing_manager(async_ops=True) as together:
        for size, output in zip((3, 2), outputs):
            dist.all_gather_into_tensor(output, base[:size].contiguous())
    together.wait()
    show("coalesced", own, whole, *outputs)
    rows = [rank + 1] * world
    counts = [peer + 1 for peer in range(world)]
    received = torch.zeros(sum(rows), 2)
    dist.all_to_all_single(received, torch.arange(2.0 * sum(counts)).view(-1, 2) + rank, rows, counts)
    lists = [torch.zeros(3) for _ in range(world)]
    dist.all_to_all(lists, [base[:3] + peer for peer in range(world)])
    show("exchanged", received, *lists)
    dist.broadcast(base, src=0)
    near = torch.zeros(12)
    there = dist.P2POp(dist.isend, base + rank, (rank + 1) % world)
    here = dist.P2POp(dist.irecv, near, (rank - 1) % world)
    for work in dist.batch_isend_irecv([there, here]):
        work.wait()
    dist.all_reduce(near, group=pair)
    show("functional", functional.all_reduce(near, "sum", dist.group.WORLD), near)
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    gathered = [torch.zeros(12) for _ in range(world)] if rank == 0 else None
    dist.gather(base, gathered)
    dist.barrier()
    print(objects, gathered)
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("script", JOBS)
def test_losses_are_those_of_plain_gloo_by_gloo_and_by_rails(script: str, tmp_path: Path) -> None:
    path, *words = script.split()
    job = [str(EXAMPLES / path), *words, "--steps", str(STEPS), *SMALL]
    (plain,) = plain_gloo(tmp_path, WORLD, [job])
    with ScriptRanks.start(job[0], job[1:]) as scripts:
        by_gloo = run_ranks(scripts, tmp_path, WORLD)
        rails, change = carried(tmp_path, WORLD, STEPS - 1, 1024)
        by_rails = run_ranks(scripts, tmp_path, WORLD, change)
        assert scripts.failures == []
    losses = [line for line in plain.splitlines() if "loss" in line]
    assert len(losses) == STEPS or path == "pp_dp.py"
    assert [line for line in by_gloo[0].splitlines() if "loss" in line] == losses
    assert [line for line in by_rails[0].splitlines() if "loss" in line] == losses
    for rank, heard in rails.heard.items():
        assert sum("kind" in message for message in heard) > 0, rank
        assert [message["step"] for message in heard if "step" in message] == [0]


def test_a_trace_holds_calls_waits_and_steps_of_ddp(tmp_path: Path) -> None:
    with ScriptRanks.start(str(EXAMPLES / "ddp.py"), ["--steps", "9", *SMALL, "--bucket-mb", "1"]) as scripts:
        run_ranks(scripts, tmp_path, 2, lambda rank: type(rank)(**(vars(rank) | {"steps": 3})))
        assert (scripts.ended, scripts.steps) == ({0: 0, 1: 0}, {0: 3, 1: 3})
    first, second = traces(tmp_path, 2)
    assert [event for event in first.events if isinstance(event, StepEnd)][-1].step == 2
    calls = [(number, call) for number, call in enumerate(first.calls) if call.step == 2 and call.kind == "all_reduce"]
    gradients = [number for number, call in calls if call.bytes > 4]
    waits = Counter(event.call for event in first.events if isinstance(event, Wait))
    assert gradients and all(waits[number] == 1 for number in gradients)  # which DDP waits for in C++
    assert [call.bytes for call in first.calls] == [call.bytes for call in second.calls]
    assert {call.label for call in first.calls} == {"default_pg"}
    assert sum(event.work.seconds for event in first.events) > 0


def test_every_kind_of_call_gives_the_same_by_gloo_and_by_rails(tmp_path: Path) -> None:
    script = tmp_path / "kinds.py"
    script.write_text(ALL_KINDS)
    with ScriptRanks.start(str(script), []) as scripts:
        by_gloo = run_ranks(scripts, tmp_path, 3)
        assert scripts.failures == []
        rails, change = carried(tmp_path, 3, 3, 1)
        by_rails = run_ranks(scripts, tmp_path, 3, change)
        assert scripts.failures == []
    assert [text.splitlines()[-60:] for text in by_rails] == [text.splitlines()[-60:] for text in by_gloo]
    kinds = Counter(message["kind"] for message in rails.heard[0] if "kind" in message)
    assert set(kinds) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv"}
    assert kinds["all_reduce"] == 2 * 11
    assert "gloo is taken instead" in by_gloo[0] and "gloo is taken" not in by_gloo[1]
