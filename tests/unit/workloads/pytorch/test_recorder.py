"""What one rank of a script asks for, recorded on shapes alone; that it equals real processes is tested elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from checkout import IS_OPEN

from railyard.errors import ConfigError, RailyardError
from workloads.pytorch.experts import Experts
from workloads.pytorch.fake_ranks import record_shapes
from workloads.pytorch.trace import Call, RankTrace, StepEnd, Wait

torch = pytest.importorskip("torch", reason="needs the extra torch (docs/torch.md)")
pytestmark = pytest.mark.filterwarnings("default")  # of PyTorch about itself

BEGIN = """
import sys, torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.distributed.pipelining import *
from torch.utils.checkpoint import checkpoint
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32, bias=False), nn.Linear(32, 8, bias=False)
    def forward(self, x):
        return x + self.down(self.up(x).relu())
def sharded(net, **how):
    for layer in net:
        fully_shard(layer, **how)
    return fully_shard(net, **how)
"""
TRAIN = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    net(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PIPELINE = """
mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("pp", "dp"))
at = mesh["pp"].get_local_rank()
numbers = {numbers}
parts = [nn.Sequential(Block()) for _ in numbers]
stages = [PipelineStage(part, number, 2 * len(numbers), torch.device("cpu"), group=mesh["pp"].get_group())
          for part, number in zip(parts, numbers)]
schedule = {schedule}({stages}, 4, loss_fn=lambda out, target: (out - target).sum())
optimizer = torch.optim.SGD([weight for part in parts for weight in part.parameters()], lr=0.1)
for step in range(5):
    given = (torch.randn(8, 8),) if 0 in numbers else ()
    schedule.step(*given, **({{"target": torch.randn(8, 8)}} if 2 * len(numbers) - 1 in numbers else {{}}))
    optimizer.step()
"""
WEIGHTS = 2 * 8 * 32
"""Numbers in a block."""


def recorded(body: str, folder: Path, world: int = 4, **more: Any) -> dict[int, RankTrace]:
    script = folder / "script.py"
    script.write_text(BEGIN + body)
    return record_shapes(str(script), (), world, **more)


def of_last_step(trace: RankTrace) -> list[Call]:
    last = max(event.step for event in trace.events if isinstance(event, StepEnd))
    return [call for call in trace.calls if call.step == last]


def flops(trace: RankTrace, step: int) -> float:
    return sum(event.work.flops for event in trace.events if event.step == step)


def test_data_parallel_sets_up_and_then_reduces_buckets_while_it_computes(tmp_path: Path) -> None:
    body = "net = nn.parallel.DistributedDataParallel(nn.Sequential(Block(), Block()), bucket_cap_mb=0.002)"
    (trace,) = recorded(body + TRAIN, tmp_path).values()
    assert [event.step for event in trace.events if isinstance(event, StepEnd)] == [0, 1, 2]
    set_up = [call.kind for call in trace.calls if call.step == 0]
    assert set_up[:2] == ["all_gather", "broadcast"] and next(c.kind for c in trace.calls if c.step == 1) == "broadcast"
    calls = of_last_step(trace)
    assert [(call.kind, call.ranks, call.dtype, call.part) for call in calls] == [
        ("all_reduce", (0, 1, 2, 3), "float32", "B")
    ] * len(calls)
    assert sum(call.bytes for call in calls) == 2 * WEIGHTS * 4 and len(calls) > 1
    ends = [type(event) for event in trace.events if event.step == 2]
    assert ends == [Call] * len(calls) + [Wait] * len(calls) + [StepEnd]
    # forward and backward of both layers, but for the gradient of the input
    assert flops(trace, 2) == 2 * 4 * WEIGHTS * 6 - 2 * 4 * 8 * 32
    assert all(event.work.moved_bytes > 0 for event in trace.events if isinstance(event, StepEnd))


def test_a_model_may_be_moved_and_have_other_numbers(tmp_path: Path) -> None:
    body = """
net = nn.Sequential(Block(), nn.LayerNorm(8)).to("cpu").bfloat16().float().double()
net = nn.parallel.DistributedDataParallel(net)
net.forward = lambda x, forward=net.forward: forward(x.double())"""
    (trace,) = recorded(body + TRAIN, tmp_path).values()
    assert [(call.dtype, call.bytes) for call in of_last_step(trace)] == [("float64", (WEIGHTS + 16) * 8)]


def test_sharded_parameters_are_gathered_by_unit_forward_and_backward(tmp_path: Path) -> None:
    (trace,) = recorded("net = sharded(nn.Sequential(Block(), Block()))" + TRAIN, tmp_path).values()
    calls = of_last_step(trace)
    assert [(call.kind[-6:], call.part[:1], call.module) for call in calls] == [
        ("gather", "F", "0"), ("gather", "F", "1"), ("gather", "B", "1"), ("gather", "B", "0"),
        ("catter", "B", "1"), ("catter", "B", "0"),
    ] or Counter(call.kind for call in calls) == {"all_gather": 4, "reduce_scatter": 2}  # fmt: skip
    assert {call.bytes for call in calls} == {WEIGHTS * 4}
    assert any("CPU's path" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("how", "kinds"),
    [
        ('mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))',
         {("all_gather", 2): WEIGHTS * 4, ("reduce_scatter", 2): WEIGHTS * 4, ("all_reduce", 2): WEIGHTS * 2}),
        ("mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)",
         {("all_gather", 4): WEIGHTS * 2, ("reduce_scatter", 4): WEIGHTS * 4}),
    ],
    ids=["replicas", "bfloat16"],
)  # fmt: skip
def test_bytes_of_sharded_parameters(how: str, kinds: dict[tuple[str, int], int], tmp_path: Path) -> None:
    (trace,) = recorded(f"net = sharded(nn.Sequential(Block()), {how})" + TRAIN, tmp_path).values()
    assert {(call.kind, len(call.ranks)): call.bytes for call in of_last_step(trace)} == kinds


def test_a_checkpoint_computes_the_forward_pass_anew(tmp_path: Path) -> None:
    plain = "net = nn.Sequential(Block(), Block())" + TRAIN
    again = plain.replace("net(torch.randn(4, 8))", "checkpoint(net, torch.randn(4, 8), use_reentrant=False)")
    once, twice = (flops(recorded(body, tmp_path)[0], 1) for body in (plain, again))
    assert twice == once + 3 * 2 * 4 * 8 * 32  # but for the last product, which nothing needs


def test_tensor_parallel_ranks_wait_for_what_they_gather(tmp_path: Path) -> None:
    body = """
from torch.distributed.tensor.parallel import *
plan = {"0.up": ColwiseParallel(), "0.down": RowwiseParallel()}
net = parallelize_module(nn.Sequential(Block()), init_device_mesh("cpu", (world,), mesh_dim_names=("tp",)), plan)
"""
    (trace,) = recorded(body + TRAIN, tmp_path).values()
    first = of_last_step(trace)[0]
    assert (first.kind, first.label, first.bytes) == ("all_reduce", "default_pg", 128)
    calls = [number for number, call in enumerate(trace.calls) if call.kind == "all_reduce"]
    assert calls == [event.call for event in trace.events if isinstance(event, Wait) and event.call in calls]
    assert flops(trace, 1) == (2 * 4 * WEIGHTS * 3 - 2 * 4 * 8 * 32) / 4


@pytest.mark.parametrize(
    ("schedule", "numbers", "parts"),
    [
        ("Schedule1F1B", "[at]", "FB"),
        ("ScheduleInterleaved1F1B", "[at, at + 2]", "FB"),
        ("ScheduleInterleavedZeroBubble", "[at, at + 2]", "FBW"),
        ("ScheduleZBVZeroBubble", "[at, 3 - at]", "FBW"),
    ],
)
def test_the_stages_of_a_pipeline_are_recorded_and_meet(
    schedule: str, numbers: str, parts: str, tmp_path: Path
) -> None:
    stages = "stages[0]" if schedule == "Schedule1F1B" else "stages"
    pipeline = PIPELINE.format(schedule=schedule, numbers=numbers, stages=stages)
    # each pass also says what it is by a call of its own
    body = pipeline.replace("parts =", "Block.forward = lambda self, x, f=Block.forward: told(f(self, x))\nparts =")
    body = "def told(x):\n    dist.all_reduce(torch.zeros(1))\n    return x\n" + body
    traces = recorded(body, tmp_path, world=1024)
    assert list(traces) == [0, 512]
    sent, received = (
        Counter((min(rank, call.peer), call.bytes) for rank, trace in traces.items() for call in of_last_step(trace)
                if call.kind == kind and call.peer is not None)
        for kind in ("send", "recv")
    )  # fmt: skip
    assert sent == received and sum(sent.values()) > 7
    told = [call for call in of_last_step(traces[0]) if call.kind == "all_reduce"]
    assert {call.part for call in told} >= {f"F{number}" for number in range(4)}


def test_tokens_go_to_experts_by_the_distribution_that_is_given(tmp_path: Path) -> None:
    body = """
net = nn.Linear(8, world)
class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, world)
    def forward(self, x):
        sent = torch.bincount(self.gate(x).argmax(-1), minlength=world)
        got = torch.{got}
        dist.all_to_all_single(got, sent)
        sent, got = sent.tolist(), got.tolist()
        out = x.new_empty(sum(got), 8)
        dist.all_to_all_single(out, x, got, sent)
        return self.gate(out)
net = Moe()
"""
    for got in ("empty_like(sent)", "empty(world, dtype=torch.int64)"):
        (trace,) = recorded(
            body.replace("{got}", got) + TRAIN, tmp_path, experts=Experts(weights=((2, 1, 1, 0),))
        ).values()
        counts, tokens = of_last_step(trace)
        assert counts.sent == counts.received == (8,) * 4
        assert tokens.sent == (64, 32, 32, 0) and tokens.received == (64,) * 4
    with pytest.raises(ConfigError, match=r"script.py:\d+: counts data that do not exist \(bincount\).*--experts"):
        recorded(body.replace("{got}", got) + TRAIN, tmp_path)


def test_objects_go_from_rank_to_rank(tmp_path: Path) -> None:
    body = """
told = [{"seed": 7}] if rank == 0 else [None]
dist.broadcast_object_list(told, src=0)
assert told == [{"seed": 7}]
all_of_them = [None] * world
dist.all_gather_object(all_of_them, told)
assert all_of_them == [told] * world
if rank < 2:
    mine = [rank]
    dist.send_object_list(mine, dst=1) if rank == 0 else dist.recv_object_list(mine, src=0)
    assert mine == [0]
net = nn.Sequential(Block())
"""
    traces = recorded(body + TRAIN, tmp_path, ranks=(0, 1, 2))
    kinds = [call.kind for call in traces[1].calls]
    assert kinds == ["broadcast"] * 2 + ["all_gather"] * 2 + ["recv"] * 2
    assert [call.bytes for call in traces[1].calls[4:]] == [call.bytes for call in traces[0].calls[4:]]


def test_numbers_that_do_not_exist_are_noted_by_line(tmp_path: Path) -> None:
    body = "net = nn.Sequential(Block())\n" + TRAIN + "    print(sum(w.sum() for w in net.parameters()).item())\n"
    (trace,) = recorded(body, tmp_path, steps=3).values()
    line = len((BEGIN + body).splitlines())
    assert trace.notes == (f"numbers without data were read as 0, 2 of them at {tmp_path / 'script.py'}:{line}",)


REFUSED = {
    "net = nn.Linear(8, 8)\nx = torch.randn(8)\nx[x > 0]": "script.py:21: has a shape that depends on data",
    "init_device_mesh('cuda', (4,))": r'script.py:19: asks for a mesh of "cuda"; use "cpu"',
    "torch.zeros(4, device='cuda')": "script.py:19: asks for a tensor on cuda",
    "torch.cuda.set_device(0)": "script.py:19: asks for a GPU",
    "sys.exit(0)": "script.py: ended before an optimizer took a step",
    "dist.recv(torch.zeros(1))": "script.py:19: rank 0 calls recv_any_source in a group of 4 from rank 0, which is not",
    "sys.exit(3)": "rank 0 of 4 ended with status 3",
    "import os; os.kill(os.getpid(), 9)": "rank 0 of 4 ended with status -9",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_cannot_be_recorded_is_one_sentence(body: str, tmp_path: Path) -> None:
    with pytest.raises(RailyardError, match=REFUSED[body]):
        recorded(body, tmp_path)


def test_a_script_that_dies_shows_its_own_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RailyardError, match="rank 0 of 4 ended with status 1"):
        recorded("def work():\n    raise KeyError('no such layer')\nwork()", tmp_path)
    shown = capfd.readouterr().err
    assert shown.count("Traceback") == 1 and "KeyError: 'no such layer'" in shown and "fake_rank.py" not in shown


def test_a_script_that_asks_for_nccl_is_told_once_or_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = "dist.new_group([0, 1], backend='nccl')\ndist.new_group([0, 1], backend='nccl')\nnet = nn.Linear(8, 8)"
    recorded(body + TRAIN, tmp_path)
    assert capfd.readouterr().err.count("asks for nccl") == 1
    with pytest.raises(ConfigError, match=r"script.py:19: asks for nccl, which --strict refuses"):
        recorded(body + TRAIN, tmp_path, strict=True)


@pytest.mark.skipif(os.geteuid() != 0 or not IS_OPEN, reason="needs root and a checkout that another user may read")
def test_under_sudo_a_script_is_its_callers_and_reads_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    body = "import os\nprint(os.getuid(), os.getgid(), os.read(0, 9), file=sys.stderr)\nnet = Block()\n" + TRAIN
    with TemporaryDirectory() as made:  # pytest's own folders are root's alone
        Path(made).chmod(0o755)
        assert recorded(body, Path(made))[0].world == 4
    assert "65534 65534 b''" in capfd.readouterr().err


def test_groups_made_anew_have_their_own_ranks(tmp_path: Path) -> None:
    body = """
net, groups = Block(), []
for other in (1, 2):
    group = dist.new_group([0, other])
    assert dist.get_backend() == dist.get_backend(group) == "gloo"
    dist.all_reduce(torch.ones(8), group=group)
    if other == 1:
        dist.destroy_process_group()
        dist.init_process_group("gloo")
"""
    calls = recorded(body + TRAIN, tmp_path)[0].calls
    assert [call.ranks for call in calls] == [(0, 1), (0, 2)]


def test_a_script_imports_its_own_packages_where_we_have_some_of_these_names(tmp_path: Path) -> None:
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "mine.py").write_text("SIZE = 5\n")
    body = "from workloads.mine import SIZE\nnet = Block()\ndist.all_reduce(torch.ones(SIZE))\n"
    assert recorded(body + TRAIN, tmp_path)[0].calls[0].bytes == 20
