"""One rank of a script that is run on shapes alone, in a process of its own (a fork that has imported torch already).

Torch's ``fake`` backend answers for all other ranks. What it cannot answer is answered here: the tables of device
meshes stay real numbers, objects come from the mailbox of the recorded ranks, or are taken to be as this rank's own.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.distributed_c10d as c10d
import torch.distributed.fsdp
import torch.distributed.tensor.parallel
from torch._subclasses.fake_tensor import DynamicOutputShapeException, UnsupportedOperatorException
from torch.distributed.pipelining import stage as stages
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

from railyard.errors import ConfigError
from workloads.pytorch import fake_ddp
from workloads.pytorch.experts import Experts
from workloads.pytorch.recorder import Recorder, is_users
from workloads.pytorch.user_script import call_it_gloo, gpu_backend, own_traceback, run_script, set_environment

ANSWER_S = 300.0
"""Longest wait for an object of another recorded rank."""
STEPS, STEPS_WITH_BUCKETS = 2, 3
"""Steps that are run: one to set things up, and one; a further one where the first changes the buckets of gradients."""
_WITHOUT_TABLES = ("_get_backend", "get_coordinate", "_is_current_rank_part_of_mesh", "size", "__hash__", "__eq__")
"""Methods of a device mesh that need no tables, or are called so often that they are told apart."""


@dataclass(frozen=True)
class RankOrder:
    """The script to run as a rank. ``steps`` 0: as many as are needed. ``folder`` holds traces and objects."""

    script: str
    arguments: tuple[str, ...]
    rank: int
    world: int
    gpus_per_server: int
    steps: int
    experts: Experts | None
    strict: bool
    folder: Path


class Objects:
    """Torch's calls that carry Python objects, of the sizes that the real ones have.

    What others send comes from the mailbox of the recorded ranks, files in ``folder``; what they give to all is taken
    to be as this rank's own. ``tell`` is told whom it waits for.
    """

    def __init__(self, recorder: Recorder, folder: Path, tell: Callable[..., None]) -> None:
        self._recorder, self._folder, self._tell = recorder, folder, tell
        self._numbers: Counter[str] = Counter()

    def install(self) -> None:
        for name in ("send", "recv", "broadcast"):
            _replace(f"{name}_object_list", getattr(self, name))
        for name in ("all_gather", "gather"):
            _replace(f"{name}_object", getattr(self, name))

    def send(self, object_list: Any, dst: Any = None, group: Any = None, *_: Any, **more: Any) -> None:
        group, peer = _rank_in(group, dst, more.get("group_dst"))
        parts = self._put(f"{self._recorder.rank}-{peer}", object_list, group)
        self._note("send", group, parts, peer=peer)

    def recv(self, object_list: Any, src: Any = None, group: Any = None, *_: Any, **more: Any) -> int:
        group, peer = _rank_in(group, src, more.get("group_src"))
        self._note("recv", group, self._get(f"{peer}-{self._recorder.rank}", peer, object_list, group), peer=peer)
        return peer

    def broadcast(self, object_list: Any, src: Any = None, group: Any = None, *_: Any, **more: Any) -> None:
        group, root = _rank_in(group, src, more.get("group_src"))
        way = f"{root}-group-{group.group_name}"
        if root == self._recorder.rank:
            parts = self._put(way, object_list, group)
        else:
            parts = self._get(way, root, object_list, group)
        self._note("broadcast", group, parts, root=root)

    def all_gather(self, object_list: Any, obj: Any, group: Any = None) -> None:
        group, _ = _rank_in(group)
        parts = [_bytes_of(obj, group)] * group.size()
        object_list[:] = _objects_of(parts, group)
        self._note("all_gather", group, parts)

    def gather(self, obj: Any, object_gather_list: Any = None, dst: Any = None, group: Any = None,
               group_dst: Any = None) -> None:  # fmt: skip
        group, root = _rank_in(group, dst, group_dst)
        parts = [_bytes_of(obj, group)] * group.size()
        if object_gather_list is not None:
            object_gather_list[:] = _objects_of(parts, group)
        self._recorder.note("all_gather", group, 8 * len(parts), "int64")
        self._recorder.note("gather", group, sum(map(len, parts)), "uint8", root=root)

    def _note(self, kind: str, group: Any, parts: list[bytes], **more: Any) -> None:
        self._recorder.note(kind, group, 8 * len(parts), "int64", **more)
        self._recorder.note(kind, group, sum(map(len, parts)), "uint8", **more)

    def _put(self, way: str, objects: list[Any], group: Any) -> list[bytes]:
        """Leave objects on their way; returns the bytes that torch makes of each."""
        parts, path = [_bytes_of(value, group) for value in objects], self._next(way)
        draft = path.with_suffix(".new")
        draft.write_bytes(b"".join(len(part).to_bytes(8, "big") + part for part in parts))
        draft.rename(path)
        return parts

    def _get(self, way: str, sender: int, objects: list[Any], group: Any) -> list[bytes]:
        """Fill ``objects`` with those that come from ``sender``."""
        path, end, parts = self._next(way), time.monotonic() + ANSWER_S, list[bytes]()
        self._tell("want", sender)
        self._tell("waits")
        while not path.exists():
            if time.monotonic() > end:
                raise ConfigError(f"waited {ANSWER_S:g} s for an object from rank {sender}, which never sent it")
            time.sleep(0.002)
        self._tell("goes")
        with path.open("rb") as file:
            while length := file.read(8):
                parts.append(file.read(int.from_bytes(length, "big")))
        objects[:] = _objects_of(parts, group)
        return parts

    def _next(self, way: str) -> Path:
        self._numbers[way] += 1
        return self._folder / f"object-{way}-{self._numbers[way]}"


def _rank_in(group: Any, rank: int | None = None, place: int | None = None) -> tuple[Any, int]:
    """The group, or that of all, and the rank of the job that is meant by a rank or a place in the group."""
    group = group or c10d._get_default_group()
    return group, rank if rank is not None else dist.get_global_rank(group, place or 0)


def _bytes_of(value: Any, group: Any) -> bytes:
    with _disable_current_modes():
        return bytes(c10d._object_to_tensor(value, torch.device("cpu"), group)[0].tolist())


def _objects_of(parts: list[bytes], group: Any) -> list[Any]:
    with _disable_current_modes():
        tensors = [torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in parts]
        return [c10d._tensor_to_object(tensor, len(tensor), group) for tensor in tensors]


def without_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return call


def _replace(name: str, function: Callable[..., Any]) -> None:
    """Replace a function of torch.distributed wherever it was imported to."""
    for place, module in list(sys.modules.items()):
        if place.startswith("torch.distributed") and hasattr(module, name):
            setattr(module, name, function)


def _patch(order: RankOrder, recorder: Recorder, tell: Callable[..., None]) -> None:
    """Let groups be of the fake backend, and meshes, objects, buckets and votes be answered."""
    init, new = c10d.init_process_group, c10d.new_group

    def checked(backend: Any) -> None:
        if name := gpu_backend(backend):
            if order.strict:
                raise recorder.refusal(f'asks for {name}, which --strict refuses; use the backend "gloo"')
            tell("say", f"{order.script}: asks for {name}; this is a CPU, where calls of gloo are recorded instead")

    def init_process_group(backend: Any = None, *_: Any, **__: Any) -> None:
        checked(backend)
        with _disable_current_modes():
            init("fake", rank=order.rank, world_size=order.world, store=FakeStore())
        call_it_gloo(dist.group.WORLD)

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        checked(backend)
        if ranks is not None and order.rank not in ranks and not kwargs.get("use_local_synchronization"):
            c10d._process_group_name([], use_hashed_name=False)  # which counts the groups, as each has its number
            return c10d.GroupMember.NON_GROUP_MEMBER
        with _disable_current_modes():
            group = new(ranks, timeout, "fake", *args, **kwargs)
        call_it_gloo(group)
        return group

    mesh_of = without_modes(device_mesh.init_device_mesh)

    def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        if device_type != "cpu":
            raise recorder.refusal(f'asks for a mesh of "{device_type}"; use "cpu" where there is no GPU')
        return mesh_of(device_type, *args, **kwargs)

    for replacement in (init_process_group, new_group, init_device_mesh):
        _replace(replacement.__name__, replacement)
    equal = without_modes(device_mesh.DeviceMesh.__eq__)
    for name, member in list(vars(device_mesh.DeviceMesh).items()):
        if type(member).__name__ == "function" and name not in _WITHOUT_TABLES:
            setattr(device_mesh.DeviceMesh, name, without_modes(member))
        elif isinstance(member, (staticmethod, classmethod)):
            setattr(device_mesh.DeviceMesh, name, type(member)(without_modes(member.__func__)))
    device_mesh.DeviceMesh.__eq__ = lambda mesh, other: mesh is other or equal(mesh, other)
    fake_ddp.install()
    vote = stages.PipelineStage._warmup_backward_result

    def as_this_stage_votes(stage: Any, received_result: Any = None) -> Any:
        vote(stage, received_result)  # for its sends and receives
        static = not stages.InferenceMode.needs_dynamic(stage._user_meta, stage.has_backward)
        return torch.tensor([int(static)], dtype=torch.int32)

    stages.PipelineStage._warmup_backward_result = as_this_stage_votes


def run(order: RankOrder, tell: Callable[..., None]) -> int:
    """Run the script as one rank, write its trace, and end the process when it has its steps; else its exit status.

    ``tell`` carries what others should know: ``want`` a rank recorded too, ``waits`` and ``goes`` (on), ``say`` a
    sentence, and ``refuse`` one that ends everything.
    """
    server = order.gpus_per_server
    set_environment(order.rank, order.world, order.rank % server, server, "127.0.0.1", 1)
    torch.set_num_threads(1)

    def stepped(steps: int) -> None:
        wanted = order.steps or (STEPS_WITH_BUCKETS if fake_ddp.Reducer.made else STEPS)
        if steps >= wanted:
            write()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def write() -> None:
        with open(order.folder / f"{order.rank}.jsonl", "w") as file:
            file.writelines(f"{text}\n" for text in recorder.trace().lines())

    recorder = Recorder(order.rank, order.world, order.script, order.experts, partial(tell, "want"), stepped)
    _patch(order, recorder, tell)
    Objects(recorder, order.folder, tell).install()
    try:
        with recorder:
            status = run_script(order.script, order.arguments)
    except ConfigError as error:
        tell("refuse", error.message, error.source or _line_of(error, order.script))
        return 2
    except Exception as error:
        refused = _refused(error)
        if refused is None:
            print(own_traceback(error, order.script), file=sys.stderr, end="")
            return 1
        tell("refuse", refused, _line_of(error, order.script))
        return 2
    if status:
        return status
    if not recorder.step:
        tell(
            "refuse",
            "ended before an optimizer took a step after init_process_group; a step is what is recorded",
            order.script,
        )
        return 2
    write()
    return 0


def _refused(error: Exception) -> str | None:
    """The sentence about an error that comes of having no data or no GPU; None for one of the script's own."""
    instead = "give --experts for counts of tokens, or run real ranks with --real"
    if isinstance(error, DynamicOutputShapeException):
        return f"has a shape that depends on data, which a record of shapes lacks ({error.func}); {instead}"
    if isinstance(error, UnsupportedOperatorException):
        return f"calls {error.func}, which is not known on shapes alone; {instead}"
    if isinstance(error, (RuntimeError, AssertionError, AttributeError)) and "cuda" in str(error).lower():
        return 'asks for a GPU; use "cpu" where torch.cuda.is_available() is False'
    return None


def _line_of(error: Exception, script: str) -> str:
    lines = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if is_users(frame)]
    return f"{lines[-1][0].f_code.co_filename}:{lines[-1][1]}" if lines else script
