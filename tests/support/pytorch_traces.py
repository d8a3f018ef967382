"""Traces as ranks of a PyTorch script leave them, of a mesh (pp, dp, tp) of equal stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workloads.pytorch.build import record_of
from workloads.pytorch.record import Record
from workloads.pytorch.trace import Call, RankTrace, StepEnd, TraceEvent, Wait, Work

LARGE = 1 << 20
RECORD = """\
record: {name: job, ranks: 4, gpus_per_server: 2}
roles:
  tp: {dimension: tp, groups: ['0,1 *2/2']}
  pp.0-1: {dimension: pp, groups: ['0,2 *2/1']}
classes:
- ranks: 0-1
  calls: |
    0.001: all_gather tp 4096 as ag
    0 after 0: send pp.0-1 4096
    0: end
- ranks: 2-3
  calls: |
    0: recv pp.0-1 4096
    0.5 after 0: all_gather tp 4096
    0: end
uneven:
  uneven0: |
    1 2
    3 4
"""


def seconds(work: Work) -> float:
    return work.flops / 1e12


def record(traces: Mapping[int, RankTrace], gpus_per_server: int = 1, front_end_below: int = 65536) -> Record:
    return record_of(
        traces, "job", 2, seconds=seconds, front_end_below=front_end_below, gpus_per_server=gpus_per_server
    )


class Script:
    """The events of one rank, as it goes along."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.events: list[TraceEvent] = []
        self.step = self.calls = 0

    def call(self, kind: Any, ranks: Iterable[int], size: int = LARGE, *, wait: bool = True, **more: Any) -> int:
        call = Call(self.step, kind, tuple(ranks), size, work=Work(flops=1e9 * (1 + self.calls % 3)), **more)
        if len(call.ranks) < 2:
            return -1
        self.events.append(call)
        self.calls += 1
        if wait:
            self.wait(self.calls - 1)
        return self.calls - 1

    def wait(self, call: int) -> None:
        self.events.append(Wait(self.step, call, Work(flops=1e6)))

    def end(self) -> None:
        self.events.append(StepEnd(self.step, Work(flops=5e8)))
        self.step += 1

    @property
    def trace(self) -> RankTrace:
        return RankTrace(self.rank, self.world, tuple(self.events))


def mesh_step(script: Script, pp: int, dp: int, tp: int, micro: int, tensor: int = LARGE) -> None:
    """A step of FSDP x TP x PP: all forward passes, then all backward passes, with a norm over all ranks."""
    rank, inner = script.rank, dp * tp
    stage, replica, part = rank // inner, rank // tp % dp, rank % tp
    line = [s * inner + replica * tp + part for s in range(pp)]
    data = [stage * inner + d * tp + part for d in range(dp)]
    tensors = [rank - part + t for t in range(tp)]
    for direction in ("F", "B"):
        source, target = (stage - 1, stage + 1) if direction == "F" else (stage + 1, stage - 1)
        for number in range(micro):
            where: dict[str, Any] = {"part": f"{direction}{number}", "module": "layers.0"}
            if 0 <= source < pp:
                script.call("recv", line, label="mesh_pp", peer=line[source], part=where["part"])
            if direction == "F" or number == 0:
                script.call("all_gather", data, 8 * LARGE, label="mesh_dp", **where)
            script.call("all_gather", tensors, tensor, label="mesh_tp", **where)
            script.call("reduce_scatter", tensors, tensor, label="mesh_tp", **where)
            if 0 <= target < pp:
                script.call("send", line, label="mesh_pp", peer=line[target], part=where["part"], wait=False)
    script.call("reduce_scatter", data, 8 * LARGE, label="mesh_dp", module="layers.0")
    script.call("barrier", range(script.world), 0, label="default_pg")
    script.call("all_reduce", range(script.world), 4, label="default_pg")
    script.end()


def mesh_traces(
    pp: int, dp: int, tp: int, *, micro: int = 2, representatives: bool = False, tensor: int = LARGE
) -> dict[int, RankTrace]:
    """Traces of three steps of all ranks, or of one of each stage."""
    world = pp * dp * tp
    traces = {}
    for rank in range(0, world, world // pp if representatives else 1):
        script = Script(rank, world)
        for _ in range(3):
            mesh_step(script, pp, dp, tp, micro, tensor)
        traces[rank] = script.trace
    return traces
