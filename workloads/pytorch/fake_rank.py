"""One rank of a script that is run on shapes alone, in a process of its own (a fork that has imported torch already).

Torch's ``fake`` backend answers for all other ranks. What it cannot answer is answered here: the tables of device
meshes stay real numbers, objects come from the mailbox of the recorded ranks, or are taken to be as this rank's own.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
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

ANSWER_S = 300.0
"""Longest wait for an object of another recorded rank."""
STEPS, STEPS_WITH_BUCKETS = 2, 3
"""Steps that are run: one to set things up, and one; a further one where the first changes the buckets of gradients."""
_WITHOUT_TABLES = ("_get_backend", "get_coordinate", "_is_current_rank_part_of_mesh", "size", "__hash__", "__eq__")
"""Methods of a device mesh that need no tables, or are called so often that they are told apart."""
CPU_PATH = "asked for NCCL: this is the CPU's path (gloo), whose calls are recorded"


@dataclass(frozen=True)
class Order:
    """What is run as which rank. ``steps`` 0: as many as are needed. ``folder`` holds traces and objects."""

    script: str
    arguments: tuple[str, ...]
    rank: int
    world: int
    gpus_per_server: int
    steps: int
    experts: Experts | None
    strict: bool
    folder: Path


class Mailbox:
    """Objects between recorded ranks, as files of bytes that torch made of them; ``tell`` says whether it waits."""

    def __init__(self, folder: Path, tell: Callable[..., None]) -> None:
        self._folder, self._tell = folder, tell
        self._numbers: Counter[str] = Counter()

    def put(self, way: str, parts: list[bytes]) -> None:
        path = self._next(way)
        draft = path.with_suffix(".new")
        draft.write_bytes(b"".join(len(part).to_bytes(8, "big") + part for part in parts))
        draft.rename(path)

    def get(self, way: str) -> list[bytes]:
        path, end = self._next(way), time.monotonic() + ANSWER_S
        self._tell("waits")
        while not path.exists():
            if time.monotonic() > end:
                raise ConfigError(f"waited {ANSWER_S:g} s for an object on its way {way}; its sender never sent it")
            time.sleep(0.002)
        self._tell("goes")
        data, parts = path.read_bytes(), []
        while data:
            end_of_part = 8 + int.from_bytes(data[:8], "big")
            parts.append(data[8:end_of_part])
            data = data[end_of_part:]
        return parts

    def _next(self, way: str) -> Path:
        self._numbers[way] += 1
        return self._folder / f"object-{way}-{self._numbers[way]}"


class Objects:
    """Torch's calls that carry Python objects, answered by the mailbox; their sizes are those of the real ones."""

    def __init__(self, recorder: Recorder, box: Mailbox, want: Callable[[int], None]) -> None:
        self._recorder, self._box, self._want = recorder, box, want

    def install(self) -> None:
        for name in ("send_object_list", "recv_object_list", "broadcast_object_list", "all_gather_object",
                     "gather_object"):  # fmt: skip
            _replace(name, getattr(self, name))

    @staticmethod
    def _bytes(value: Any, group: Any) -> bytes:
        with _disable_current_modes():
            return bytes(c10d._object_to_tensor(value, torch.device("cpu"), group)[0].tolist())

    @staticmethod
    def _objects(parts: list[bytes], group: Any) -> list[Any]:
        with _disable_current_modes():
            return [
                c10d._tensor_to_object(torch.frombuffer(bytearray(part), dtype=torch.uint8), len(part), group)
                for part in parts
            ]

    def _note(self, kind: Any, group: Any, parts: list[bytes], **more: Any) -> None:
        self._recorder.note(kind, group, 8 * len(parts), "int64", **more)
        self._recorder.note(kind, group, sum(map(len, parts)), "uint8", **more)

    def send_object_list(self, object_list: list[Any], dst: int | None = None, group: Any = None, *_: Any,
                         group_dst: int | None = None, **__: Any) -> None:  # fmt: skip
        group = group or c10d._get_default_group()
        peer = dist.get_global_rank(group, group_dst) if dst is None else dst
        parts = [self._bytes(value, group) for value in object_list]
        self._box.put(f"{self._recorder.rank}-{peer}", parts)
        self._note("send", group, parts, peer=peer)

    def recv_object_list(self, object_list: list[Any], src: int | None = None, group: Any = None, *_: Any,
                         group_src: int | None = None, **__: Any) -> int:  # fmt: skip
        group = group or c10d._get_default_group()
        peer = dist.get_global_rank(group, group_src) if src is None else src
        self._want(peer)
        parts = self._box.get(f"{peer}-{self._recorder.rank}")
        object_list[:] = self._objects(parts, group)
        self._note("recv", group, parts, peer=peer)
        return peer

    def broadcast_object_list(self, object_list: list[Any], src: int | None = None, group: Any = None, *_: Any,
                              group_src: int | None = None, **__: Any) -> None:  # fmt: skip
        group = group or c10d._get_default_group()
        root = src if src is not None else dist.get_global_rank(group, group_src or 0)
        way = f"{root}-group-{group.group_name}"
        if root == self._recorder.rank:
            parts = [self._bytes(value, group) for value in object_list]
            self._box.put(way, parts)
        else:
            self._want(root)
            parts = self._box.get(way)
            object_list[:] = self._objects(parts, group)
        self._note("broadcast", group, parts, root=root)

    def all_gather_object(self, object_list: list[Any], obj: Any, group: Any = None) -> None:
        group = group or c10d._get_default_group()
        part = self._bytes(obj, group)
        object_list[:] = self._objects([part] * group.size(), group)
        self._note("all_gather", group, [part] * group.size())

    def gather_object(self, obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None,
                      group: Any = None, group_dst: int | None = None) -> None:  # fmt: skip
        group = group or c10d._get_default_group()
        root = dst if dst is not None else dist.get_global_rank(group, group_dst or 0)
        part = self._bytes(obj, group)
        if object_gather_list is not None:
            object_gather_list[:] = self._objects([part] * group.size(), group)
        self._recorder.note("all_gather", group, 8 * group.size(), "int64")
        self._recorder.note("gather", group, len(part) * group.size(), "uint8", root=root)


def without_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return call


def _replace(name: str, function: Callable[..., Any]) -> None:
    """Replace a function of torch.distributed wherever it was imported to."""
    for place, module in list(sys.modules.items()):
        if place.startswith("torch.distributed") and hasattr(module, name):
            setattr(module, name, function)


def _patch(order: Order, recorder: Recorder, tell: Callable[..., None]) -> None:
    """Let groups be of the fake backend, and meshes, objects, buckets and votes be answered."""
    init, new = c10d.init_process_group, c10d.new_group

    def checked(backend: Any) -> None:
        if "nccl" in str(backend or "").lower():
            if order.strict:
                raise recorder.refusal('asks for NCCL, which --strict refuses; use the backend "gloo"')
            tell("say", f"{recorder.line()}: {CPU_PATH}")

    def init_process_group(backend: Any = None, *_: Any, **__: Any) -> None:
        checked(backend)
        with _disable_current_modes():
            init("fake", rank=order.rank, world_size=order.world, store=FakeStore())

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        checked(backend)
        with _disable_current_modes():
            return new(ranks, timeout, "fake", *args, **kwargs)

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


def run(order: Order, tell: Callable[..., None]) -> int:
    """Run the script as one rank, write its trace, and end the process when it has its steps; else its exit status.

    ``tell`` carries what others should know: ``want`` a rank recorded too, ``waits`` and ``goes`` (on), ``say`` a
    sentence, and ``refuse`` one that ends everything.
    """
    server = {"LOCAL_RANK": order.rank % order.gpus_per_server, "LOCAL_WORLD_SIZE": order.gpus_per_server}
    place = {"RANK": order.rank, "WORLD_SIZE": order.world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}
    os.environ.update({name: str(value) for name, value in (server | place).items()})
    torch.set_num_threads(1)

    def want(rank: int) -> None:
        tell("want", rank)

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

    recorder = Recorder(order.rank, order.world, order.script, order.experts, want, stepped)
    _patch(order, recorder, tell)
    Objects(recorder, Mailbox(order.folder, tell), want).install()
    sys.path.insert(0, os.path.dirname(order.script))
    sys.argv = [order.script, *order.arguments]
    try:
        with recorder:
            runpy.run_path(order.script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    except ConfigError as error:
        tell("refuse", error.message, error.source)
        return 2
    except Exception as error:
        refused = _refused(error)
        if refused is None:
            _print_of_user(error)
            return 1
        tell("refuse", refused, _line_of(error, order.script))
        return 2
    if not recorder.step:
        tell("refuse", "ended before its optimizer took a step; a step is what is recorded", order.script)
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
    if isinstance(error, (RuntimeError, AssertionError)) and ("CUDA" in str(error) or "NVIDIA" in str(error)):
        return 'asks for a GPU; use "cpu" where torch.cuda.is_available() is False'
    return None


def _line_of(error: Exception, script: str) -> str:
    lines = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if is_users(frame)]
    return f"{lines[-1][0].f_code.co_filename}:{lines[-1][1]}" if lines else script


def _print_of_user(error: BaseException) -> None:
    """Print the traceback of a script's error from its own first line on."""
    trace = error.__traceback__
    while trace is not None and not is_users(trace.tb_frame):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)
