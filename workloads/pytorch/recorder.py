"""The mode under which one rank's script runs on shapes alone, and that writes down what it asks its network for.

Needs torch. It sees every operation below autograd: collectives of ``torch.distributed`` by the name and schema of the
operation in the dispatcher, all others by their cost (``shapes``). Labels come from the frames of Python and from hooks
of modules, so no script says more than it does anyway.
"""

from __future__ import annotations

import sys
import traceback
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork, ProcessGroup, _resolve_process_group
from torch._C._distributed_c10d import Work as TorchWork
from torch._subclasses.fake_tensor import FakeTensor

from railyard.errors import ConfigError
from workloads.pytorch.experts import Experts
from workloads.pytorch.shapes import Act, Shapes, aten, bytes_of, dtype_of, known_data, parts_of
from workloads.pytorch.trace import Call, CallKind, RankTrace, StepEnd, TraceEvent, Wait, Work
from workloads.pytorch.user_script import after_steps

_EAGER: dict[str, tuple[CallKind, str]] = {
    "allreduce": ("all_reduce", "tensors"), "allreduce_coalesced": ("all_reduce", "tensors"),
    "_allgather_base": ("all_gather", "output_tensor"), "allgather": ("all_gather", "output_tensors"),
    "allgather_into_tensor_coalesced": ("all_gather", "outputs"),
    "allgather_coalesced": ("all_gather", "output_lists"),
    "_reduce_scatter_base": ("reduce_scatter", "input_tensor"), "reduce_scatter": ("reduce_scatter", "input_tensors"),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", "inputs"),
    "alltoall_base": ("all_to_all", "input"), "alltoall": ("all_to_all", "input_tensors"),
    "broadcast": ("broadcast", "tensors"), "reduce": ("reduce", "tensors"),
    "gather": ("gather", "input_tensors"), "scatter": ("scatter", "output_tensors"),
    "send": ("send", "tensors"), "recv": ("recv", "tensors"),
    "barrier": ("barrier", ""), "monitored_barrier": ("barrier", ""),
}  # fmt: skip
"""Operations of ``c10d``, without a ``_`` at the end, and the argument whose bytes count."""
_FUNCTIONAL: tuple[tuple[str, CallKind], ...] = (
    ("all_reduce", "all_reduce"), ("broadcast", "broadcast"), ("all_gather", "all_gather"),
    ("reduce_scatter", "reduce_scatter"), ("all_to_all", "all_to_all"), ("shard_dim_alltoall", "all_to_all"),
    ("isend", "send"), ("irecv", "recv"),
)  # fmt: skip
"""Beginnings of the names of operations on tensors that are waited for by ``wait_tensor``."""
CPU_PATH = "this is the CPU's path: FSDP2 waits for each gather and reduce-scatter, where on a GPU it would go on"
_SPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
_PASSES = {
    "forward_one_chunk": ("F", "fwd_chunk_id"),
    "backward_one_chunk": ("B", "bwd_chunk_id"),
    "backward_weight_one_chunk": ("W", "bwd_chunk_id"),
}
"""Functions of a pipeline's stage: the part of the step, and the local variable with the microbatch."""
_COUNTING = ("bincount", "histc")


class Modules:
    """The path of the module at work: forward by hooks of all modules, backward by the place in the graph of autograd.

    Nodes of the graph are numbered as they are made, so those of a module are a span of numbers.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._stack: list[tuple[str, int]] = []
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._spans: list[str] = []
        hooks = torch.nn.modules.module
        hooks.register_module_forward_pre_hook(self._enter)
        hooks.register_module_forward_hook(self._leave, always_call=True)

    def _enter(self, module: Any, _: Any) -> None:
        if id(module) not in self._names:
            self._names.update((id(below), name) for name, below in module.named_modules())
        self._stack.append((self._names[id(module)], torch.autograd._get_sequence_nr()))

    def _leave(self, *_: Any) -> None:
        name, begin = self._stack.pop()
        self._begins.append(begin)
        self._ends.append(torch.autograd._get_sequence_nr())
        self._spans.append(name)

    @property
    def forward(self) -> bool:
        return bool(self._stack)

    def at_work(self) -> str:
        """The innermost module at work, empty for none or the outermost."""
        if self._stack:
            return self._stack[-1][0]
        node = torch._C._current_autograd_node()
        if node is None:
            return ""
        number = node._sequence_nr()
        for place in range(bisect_right(self._ends, number), len(self._ends)):  # inner modules end first
            if self._begins[place] <= number:
                return self._spans[place]
        return ""


class Recorder(Shapes):
    """Runs one rank on shapes alone and keeps its events.

    ``script`` is the path that errors name, ``asked_for`` is told each peer of a send or receive, ``stepped`` the
    number of steps that the optimizer has taken.
    """

    def __init__(
        self,
        rank: int,
        world: int,
        script: str,
        experts: Experts | None,
        asked_for: Callable[[int], None],
        stepped: Callable[[int], None],
    ) -> None:
        super().__init__()
        self.rank, self.world, self.script, self.step = rank, world, script, 0
        self.events: list[TraceEvent] = []
        self.notes: Counter[str] = Counter()
        self._experts, self._asked_for, self._stepped = experts, asked_for, stepped
        self._reads: Counter[str] = Counter()
        self._calls = 0
        self._by_storage: dict[int, int] = {}
        self._by_work: dict[int, tuple[int, Any]] = {}
        self._groups: dict[Any, tuple[tuple[int, ...], str]] = {}
        self._modules = Modules()
        after_steps(self._after_step)
        for kind in (TorchWork, FakeWork):
            self._watch(kind)

    def trace(self) -> RankTrace:
        read = (
            f"numbers without data were read as 0, {times} of them at {line}" for line, times in self._reads.items()
        )
        return RankTrace(self.rank, self.world, tuple(self.events), (*self.notes, *read))

    # ---- operations

    def act_of(self, func: Any) -> Act:
        name = _name(func)
        if func is aten._local_scalar_dense.default:
            return self._read
        if func.namespace == "aten" and name in _COUNTING:
            return self._counted
        if func.namespace in _SPACES and name == "wait_tensor":
            return self._waits_for_tensor
        if func.namespace in _SPACES and name != "_wrap_tensor_autograd":
            return self._communicate
        return super().act_of(func)

    def _read(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        tensor = args[0]
        if known_data(tensor) is not None:
            return known_data(tensor).item()
        self._reads[self.line()] += 1
        return False if tensor.dtype is torch.bool else 0.0 if tensor.dtype.is_floating_point else 0

    def _counted(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Tokens of each expert, by the distribution that was given for what no data say here."""
        if known_data(args[0]) is not None:
            return func(*args, **kwargs)
        given = arguments_of(func, args, kwargs)
        if self._experts is None:
            raise self.refusal(f"counts data that do not exist ({_name(func)}); give their --experts, or use --real")
        counts = self._experts.counts(args[0].numel(), int(given.get("minlength", given.get("bins", 0))), self.rank)
        with torch.utils._python_dispatch._disable_current_modes():
            return torch.tensor(counts, dtype=torch.int64 if "minlength" in given or not args[0].dtype.is_floating_point
                                else args[0].dtype)  # fmt: skip

    def refusal(self, sentence: str) -> ConfigError:
        return ConfigError(sentence, source=self.line())

    def line(self) -> str:
        """The user's line at work: the innermost frame outside of installed packages, or the script."""
        frames = traceback.walk_stack(sys._getframe(1))
        return next((f"{frame.f_code.co_filename}:{line}" for frame, line in frames if is_users(frame)), self.script)

    # ---- communication

    def _communicate(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name, eager = _name(func).rstrip("_"), func.namespace == "c10d"
        given = arguments_of(func, args, kwargs)
        group = given.get("process_group", given.get("group_name"))
        if isinstance(group, str):
            group = _resolve_process_group(group)
        elif not isinstance(group, ProcessGroup):
            group = ProcessGroup.unbox(group)
        if name == "batch_p2p_ops":
            for operation, peer, tensor in zip(given["op_list"], given["peer_list"], given["tensors"], strict=True):
                self.note("send" if "send" in operation else "recv", group, bytes_of(tensor), tensor, peer=peer)
            return self.computed(func, types, args, kwargs)
        if eager:
            kind, counted = _EAGER.get(name, ("", ""))
            data: Any = given[counted] if counted else ()
        else:
            kind = next((kind for begin, kind in _FUNCTIONAL if name.startswith(begin)), "")
            data = given.get("input", given.get("inputs", given.get("tensor", given.get("self"))))
        if not kind:
            of = f"a group of {group.size()} from rank {self._members(group)[0][0]}"
            raise self.refusal(f"rank {self.rank} calls {name} in {of}, which is not supported; see docs/torch.md")
        out = self.computed(func, types, args, kwargs)
        of_all = kind in ("gather", "scatter") or (kind == "all_gather" and not eager)
        size = bytes_of(data) * (group.size() if of_all else 1)
        call = self.note(kind, group, size, data, given, **self._splits(kind, given, out, group))
        if call is not None and eager:
            work = _unboxed(out[-1] if isinstance(out, (tuple, list)) else out)
            self._by_work[id(work)] = (call, work)
        elif call is not None:
            for tensor in [out] if isinstance(out, torch.Tensor) else out:
                self._by_storage[tensor.untyped_storage()._cdata] = call
        self._answer(kind, given, group, out)
        return out

    def note(
        self, kind: Any, group: Any, size: int, data: Any, given: Mapping[str, Any] | None = None, **more: Any
    ) -> int | None:
        """Write a call down; its number, or None for a group of one rank, which sends nothing.

        ``data`` is a tensor of the type that is sent, a list of them, or its name.
        """
        (ranks, label), given = self._members(group), given or {}
        if len(ranks) < 2:
            return None
        if kind in ("send", "recv"):
            more.setdefault("peer", ranks[given.get("dst", given.get("src", 0))])
            self._asked_for(more["peer"])
        if "root_rank" in given:
            more["root"] = ranks[given["root_rank"]]
        part, unit = self._place()
        dtype, module = data if isinstance(data, str) else dtype_of(data), unit or self._modules.at_work()
        self.events.append(
            Call(self.step, kind, ranks, size, dtype, label, module=module, part=part, work=self._work(), **more)
        )
        self._calls += 1
        return self._calls - 1

    def _members(self, group: Any) -> tuple[tuple[int, ...], str]:
        """The ranks of a group, in its order, and its label."""
        if group not in self._groups:  # its name may be that of another before
            self._groups[group] = tuple(dist.get_process_group_ranks(group)), group.group_desc
        return self._groups[group]

    def _splits(self, kind: str, given: Mapping[str, Any], out: Any, group: Any) -> dict[str, tuple[int, ...]]:
        """Bytes to and from each member of an all-to-all."""
        if kind != "all_to_all":
            return {}
        source = given.get("input_tensors", given.get("input"))
        target = given.get("output_tensors", given.get("output", out))
        return {"sent": parts_of(source, given.get("input_split_sizes"), group.size()),
                "received": parts_of(target, given.get("output_split_sizes"), group.size())}  # fmt: skip

    def _answer(self, kind: str, given: Mapping[str, Any], group: Any, out: Any) -> None:
        """Fill what a call returns if what this rank sent is known: all others are taken to send what it does."""
        source = given.get("input", given.get("tensors"))
        source = source[0] if isinstance(source, (list, tuple)) and source else source
        if source is None or known_data(source) is None:
            return
        source = known_data(source)
        target = given.get("output", out)
        with torch.utils._python_dispatch._disable_current_modes():
            if kind == "all_to_all" and source.shape[0] % group.size() == 0:
                answer = source.view(group.size(), -1)[group.rank()].repeat(group.size()).view(source.shape)
                if isinstance(target, FakeTensor):
                    target.constant = answer
                else:
                    target.copy_(answer)
            elif kind == "all_reduce" and isinstance(target, (list, tuple, torch.Tensor)):
                source.mul_(group.size())

    # ---- waits and steps

    def _work(self) -> Work:
        work = Work(0.0, self.flops, self.moved_bytes)
        self.flops = self.moved_bytes = 0.0
        return work

    def _waited(self, call: int) -> None:
        self.events.append(Wait(self.step, call, self._work()))

    def _waits_for_tensor(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call = self._by_storage.pop(args[0].untyped_storage()._cdata, None)
        if call is not None:
            self._waited(call)
        return args[0]

    def _watch(self, kind: Any) -> None:
        wait, recorder = kind.wait, self

        def waiting(work: Any, *args: Any, **kwargs: Any) -> Any:
            known = recorder._by_work.pop(id(work), None)
            if known is not None:
                recorder._waited(known[0])
            return wait(work, *args, **kwargs)

        kind.wait = waiting

    def _after_step(self) -> None:
        self.events.append(StepEnd(self.step, self._work()))
        self.step += 1
        self._stepped(self.step)

    def _place(self) -> tuple[str, str]:
        """The part of the step, and the unit of FSDP at work, by the frames above."""
        part = unit = ""
        backward = False
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_name
            if name in _PASSES:
                letter, variable = _PASSES[name]
                part = part or f"{letter}{frame.f_locals[variable]}"
            elif name == "_engine_run_backward":
                backward = True
            elif not unit and frame.f_code.co_filename.endswith("_fsdp_param_group.py"):
                self.notes[CPU_PATH] += 1
                unit = getattr(frame.f_locals.get("self"), "_module_fqn", None) or ""
            frame = frame.f_back  # type: ignore[assignment]
        return part or ("B" if backward else "F" if self._modules.forward else ""), unit


def _name(func: Any) -> str:
    return str(func._schema.name.split("::")[1])


def arguments_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an operation by the names of its schema."""
    return {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | dict(kwargs)


def is_users(frame: Any) -> bool:
    """Whether a frame of Python is of the user's own code: no installed package and none of this project."""
    name = frame.f_code.co_filename
    return not ("-packages" in name or name.startswith(("<", _OWN, _STANDARD)))


_OWN = __file__.rpartition("workloads")[0] + "workloads"
_STANDARD = traceback.__file__.rpartition("/")[0]


def _unboxed(boxed: Any) -> Any:
    for kind in (FakeWork, TorchWork):  # which are bound to Python each by itself
        try:
            return kind.unbox(boxed)
        except RuntimeError:
            continue
    return None
