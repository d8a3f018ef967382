"""Small jobs of PyTorch scripts in tests: by plain gloo, and as ranks of Railyard on loopback."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from checkout import ROOT
from rails_of_memory import RailsOfMemory

from workloads.pytorch.script_ranks import RECORDED_CALLS, RecordedCall, ScriptRank, ScriptRanks
from workloads.pytorch.trace import RankTrace, read_trace

EXAMPLES = ROOT / "docs" / "examples" / "torch"
SIZES = {"dim": 32, "layers": 2, "heads": 4, "kv-heads": 4, "hidden": 64, "vocab": 64, "seq": 16, "batch": 4}
SMALL = [part for name, size in SIZES.items() for part in (f"--{name}", str(size))]

_PLAIN = """
import os, runpy, signal, socket, sys, torch, torch.distributed.fsdp, torch.distributed.pipelining
import torch.distributed.distributed_c10d as c10d
kept = []

class Gloo(c10d.ProcessGroupGloo):
    def __init__(self, *args, **kwargs):  # kept, as the end of one may wait for a thread that waits for Python's lock
        super().__init__(*args, **kwargs)
        kept.append(self)

c10d.ProcessGroupGloo = Gloo
torch.set_num_threads(1)
world, *jobs = sys.argv[1:]
for job in jobs:
    output, script, *arguments = job.split("\\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    forks = []
    for rank in range(int(world)):
        forks.append(os.fork())
        if not forks[-1]:
            os.environ.update(RANK=str(rank), WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            os.environ.update(LOCAL_RANK=str(rank), GLOO_SOCKET_IFNAME="lo")
            os.dup2(os.open(f"{output}.{rank}", os.O_WRONLY | os.O_CREAT), 1)
            sys.argv[:] = [script, *arguments]
            sys.path.insert(0, os.path.dirname(script))
            runpy.run_path(script, run_name="__main__")
            sys.stdout.flush()
            os._exit(0)
    while forks:
        ended, status = os.wait()
        forks.remove(ended)
        if status:
            for fork in forks:
                os.kill(fork, signal.SIGKILL)
            sys.exit("a rank of plain gloo failed")
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def plain_gloo(folder: Path, world: int, jobs: Sequence[Sequence[str]]) -> list[str]:
    """What rank 0 of each job (a script and its arguments) prints without Railyard."""
    orders = ["\n".join([str(folder / f"plain{n}"), *job]) for n, job in enumerate(jobs)]
    subprocess.run(
        [sys.executable, "-c", _PLAIN, str(world), *orders], check=True, env={"OMP_NUM_THREADS": "1"}, timeout=120
    )
    return [(folder / f"plain{n}.0").read_text() for n in range(len(jobs))]


def run_ranks(
    scripts: ScriptRanks, folder: Path, world: int, change: Callable[[ScriptRank], ScriptRank] = lambda rank: rank
) -> list[str]:
    """Launch ``world`` ranks with their files in ``folder``, and wait for all; what they printed."""
    port, ranks = free_port(), []
    for rank in range(world):
        output, trace = str(folder / f"{rank}.txt"), str(folder / f"{rank}.jsonl")
        ranks.append(change(ScriptRank(rank, world, rank, world, "127.0.0.1", port, "lo", output, trace)))
    scripts.launch(ranks, [-1] * world)
    while len(scripts.ended) < world:
        assert select.select([scripts], [], [], 60)[0], "no rank has reported anything for a minute"
        scripts.poll()
    return [Path(rank.output).read_text() for rank in ranks]


def traces(folder: Path, world: int) -> list[RankTrace]:
    return [read_trace(folder / f"{rank}.jsonl") for rank in range(world)]


def recorded_calls(trace: RankTrace, step: int, front_end_below: int) -> tuple[RecordedCall, ...]:
    """The calls of one step; those of the kinds that ``RailsOfMemory`` knows are on rails, if they are large enough."""
    rows = []
    for call in trace.calls:
        if call.step == step:
            ends = (trace.rank, call.peer if call.peer is not None else -1)
            ranks = call.ranks if call.peer is None else ends if call.kind == "send" else ends[::-1]
            on_rail = call.bytes >= front_end_below and call.kind not in ("barrier", "gather", "scatter", "reduce")
            rows.append(RecordedCall(call.kind, ranks, call.bytes, on_rail, call.work.seconds))
    return tuple(rows)


def carried(
    folder: Path, world: int, step: int, front_end_below: int
) -> tuple[RailsOfMemory, Callable[[ScriptRank], ScriptRank]]:
    """Rails for the recorded ``step`` of the traces in ``folder``, and how each rank is changed to take them."""
    rows = {trace.rank: recorded_calls(trace, step, front_end_below) for trace in traces(folder, world)}
    for rank, calls in rows.items():
        (folder / f"{rank}.calls").write_bytes(RECORDED_CALLS.dump_json(calls))
    rails = RailsOfMemory(folder, rows)

    def change(rank: ScriptRank) -> ScriptRank:
        more = {"socket": rails.paths[rank.rank], "calls": str(folder / f"{rank.rank}.calls"), "trace": ""}
        return ScriptRank(**(vars(rank) | more | {"front_end_below": front_end_below}))

    return rails, change
