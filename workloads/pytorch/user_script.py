"""What a process needs to be one rank of a user's script, with real tensors or on shapes alone. Needs torch."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.distributed.distributed_c10d as c10d
from torch.optim.optimizer import register_optimizer_step_post_hook

from railyard.checkout import ROOT

_GPU_BACKENDS = "nccl", "xccl", "ucc", "mpi"


def gpu_backend(backend: Any) -> str:
    """The backend for GPUs, such as nccl, that is in what a script asks for, such as cpu:gloo,cuda:nccl; else ""."""
    return next((name for name in _GPU_BACKENDS if name in str(backend or "").lower()), "")


def call_it_gloo(group: Any) -> None:
    """Let ``get_backend`` answer gloo for a group that has this rank, as where torchrun starts the script on a CPU."""
    if group in c10d._world.pg_map:
        c10d._world.pg_map[group] = "gloo", c10d._world.pg_map[group][1]


def set_environment(rank: int, world: int, local_rank: int, local_world: int, master: str, port: int) -> None:
    """Set the variables of torchrun."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_RANK=str(local_rank),
        LOCAL_WORLD_SIZE=str(local_world),
        GROUP_RANK=str(rank // local_world),
        GROUP_WORLD_SIZE=str(-(-world // local_world)),
        MASTER_ADDR=master,
        MASTER_PORT=str(port),
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_MAX_RESTARTS="0",
        TORCHELASTIC_RUN_ID="railyard",
    )


def run_script(script: str, arguments: Sequence[str]) -> int:
    """Run the script as Python does, and return its exit status; other exceptions are its own."""
    sys.argv = [script, *arguments]
    _search_first(Path(script).absolute().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _search_first(folder: Path) -> None:
    """Let the script import what is in its folder, also a package of a name that we have (``experiments``, say)."""
    if folder != ROOT:
        packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
        both = packages.intersection(path.stem for path in folder.iterdir())
        for name in [name for name in sys.modules if name.partition(".")[0] in both]:
            del sys.modules[name]
        sys.path[:] = [place for place in sys.path if place != str(ROOT)]
    sys.path.insert(0, str(folder))


def own_traceback(error: BaseException, script: str) -> str:
    """The traceback of an exception of the script, without what is around the script and without our own frames."""
    shown = traceback.TracebackException.from_exception(error)
    names = [frame.filename for frame in shown.stack]
    begin = names.index(script) if script in names else 0
    frames = (frame for frame in shown.stack[begin:] if Path(frame.filename).parent != Path(__file__).parent)
    shown.stack = traceback.StackSummary.from_list(frames)
    return "".join(shown.format())


def after_steps(act: Callable[[], object]) -> None:
    """Call ``act`` after each step of the first optimizer that steps while the ranks are joined."""
    first: list[Any] = []

    def stepped(optimizer: Any, *_: Any) -> None:
        if c10d.is_initialized():
            first[:] = first or [optimizer]
            if optimizer is first[0]:
                act()

    register_optimizer_step_post_hook(stepped)
