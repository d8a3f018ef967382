"""The process group of a rank that runs a user's script on this network: gloo inside, each call seen. Needs torch.

Whatever backend the script asks for, its groups are ``RankGroup``s. torch calls them from Python, and from C++ where a
call is part of a graph or of DDP. Names of methods are those of torch 2.13 and older ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import _create_work_from_future

from railyard.digits import spans
from railyard.errors import AgentError, ConfigError
from workloads.pytorch.course import Asked, Course
from workloads.pytorch.shapes import bytes_of, dtype_of, parts_of, tensors_in
from workloads.pytorch.trace import Call, CallKind
from workloads.pytorch.user_script import call_it_gloo, gpu_backend

_BACKEND = "railyard"
_GLOO = dist.ProcessGroup.BackendType.GLOO
_REDUCE = {name: getattr(dist.ReduceOp, name.upper()) for name in ("sum", "avg", "min", "max", "product")}

_kept: list[Any] = []
"""All groups of gloo: the end of one would wait for its threads while these may wait for Python's lock, for ever."""


class RankWork(dist.Work):  # type: ignore[misc]  # torch is not on every machine, so it has no types here
    """The work of one call: waits are seen, and those of DDP, which waits for futures at the end of a backward pass."""

    _in_backward: tuple[RankWork, ...] = ()

    def __init__(self, inner: Any, asked: Asked, course: Course) -> None:
        super().__init__()
        self._inner, self._asked, self._course = inner, asked, course
        if not asked.on_rail and asked.recorded is not None:
            with suppress(RuntimeError):  # a send or receive of gloo has no future
                inner.get_future().add_done_callback(lambda _: course.over(asked.recorded))

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        with self._course.waiting(self._asked):
            return bool(self._inner.wait(timeout))

    def get_future(self) -> Any:
        if torch._C._current_graph_task_id() != -1:  # the call is one of a backward pass, and nobody will wait here
            if not RankWork._in_backward:
                torch.autograd.Variable._execution_engine.queue_callback(_wait_after_backward)
            RankWork._in_backward += (self,)
        return self._inner.get_future()


def _wait_after_backward() -> None:
    works, RankWork._in_backward = RankWork._in_backward, ()
    for work in works:
        work.wait()


class RankGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A group of ``ranks`` of the job, the calls of which go to ``course``, and on to gloo or its carrier."""

    def __init__(self, store: Any, place: int, timeout: timedelta, ranks: Sequence[int], course: Course) -> None:
        size = len(ranks)
        super().__init__(place, size)
        self._ranks, self._place, self._course = tuple(ranks), place, course
        self._name = self._description = ""
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), place, size, timeout)
        gloo._set_sequence_number_for_group()
        _kept.append(gloo)
        self._inner = dist.ProcessGroup(dist.PrefixStore("inner", store), place, size)
        self._inner._set_default_backend(_GLOO)
        self._inner._register_backend(torch.device("cpu"), _GLOO, gloo)

    def getBackendName(self) -> str:
        return _BACKEND  # with "gloo", DDP would look for a backend of that type inside

    def getRank(self) -> int:
        return self._place

    def getSize(self) -> int:
        return len(self._ranks)

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name
        self._inner._set_group_name(name)

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description
        self._inner._set_group_desc(description)

    rank, size, name = getRank, getSize, getBackendName
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)
    _device_types = property(lambda self: self._inner._device_types)

    def act(self, request: _Request, plain: Callable[[], Any]) -> Any:
        """Take a call of the script; ``plain`` lets gloo do it. Returns the call's work (None: it is over)."""
        if len(self._ranks) == 1:
            return plain()
        peer, root = (None if place is None else self._ranks[place] for place in (request.peer, request.root))
        call = Call(
            step=self._course.step,
            kind=request.kind,
            ranks=self._ranks,
            bytes=request.size(len(self._ranks)),
            dtype=request.dtype,
            label=self._description,
            peer=peer,
            root=root,
            sent=request.sent,
            received=request.received,
        )
        asked = self._course.ask(call, self._name)
        try:
            work = self._carry(asked, request) if asked.on_rail else plain()
        finally:
            self._course.pace.go()
        if work is not None:
            return RankWork(work, asked, self._course)
        self._course.over(asked.recorded)
        return None

    def _carry(self, asked: Asked, request: _Request) -> Any:
        """Give a call of the record to the carrier; the buffers are the script's again when the future is set."""
        assert self._course.carrier is not None and asked.recorded is not None
        future: Any = torch.futures.Future()
        send = _flat(request.send)
        receive = send if request.kind == "all_reduce" else _flat(request.receive)

        def then(error: Exception | None) -> None:
            if error is not None:
                future.set_exception(RuntimeError(str(error)))
                return
            parts = receive.split([bytes_of(tensor) for tensor in request.receive]) if request.receive else ()
            for tensor, part in zip(request.receive, parts, strict=True):
                if tensor.data_ptr() != part.data_ptr():
                    tensor.detach().copy_(part.view(tensor.dtype).view(tensor.shape))
            future.set_result(request.result)

        self._course.carrier.carry(
            asked.recorded,
            request.kind,
            request.dtype,
            self._reduction(request),
            memoryview(send.numpy()),
            memoryview(receive.numpy()),
            then,
            sent=request.sent,
            received=request.received,
        )
        return _create_work_from_future(future)

    def _reduction(self, request: _Request) -> str:
        if request.reduce is None:
            return "sum"
        for name, operation in _REDUCE.items():
            if request.reduce == operation:  # the text of one is an address
                return name
        raise AgentError(
            f"rank {self._course.rank.rank} asks for {request.kind} over ranks {spans(sorted(self._ranks))} with an "
            f"operation that the rails do not do: they do {', '.join(_REDUCE)}"
        )


@dataclass(frozen=True)
class _Request:
    """One call of torch: tensors to ``send`` and to ``receive``, in the order in which they lie in a buffer.

    ``sent`` and ``received`` as in ``Call``; ``root`` and ``peer`` are positions in the group. ``result`` is what the
    future of the call holds.
    """

    kind: CallKind
    send: Sequence[Any]
    receive: Sequence[Any]
    result: Any
    reduce: Any = None
    root: int | None = None
    peer: int | None = None
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()

    @property
    def dtype(self) -> str:
        return dtype_of([*self.send, *self.receive])

    def size(self, members: int) -> int:
        """``Call.bytes``."""
        own = bytes_of(self.receive if self.kind in ("recv", "scatter") else self.send)
        return own * members if self.kind in ("all_gather", "gather", "scatter") else own


def _request(group: RankGroup, method: str, kind: CallKind, arguments: Sequence[Any], options: Any) -> _Request:
    """The request that a call of ``method`` is: in its arguments, what is received comes before what is sent."""
    tensors = [list(tensors_in([argument])) for argument in arguments[:2]]
    send, receive = [], []
    more: dict[str, Any] = {"root": getattr(options, "rootRank", None), "reduce": getattr(options, "reduceOp", None)}
    if kind in ("all_reduce", "broadcast", "reduce"):
        send = tensors[0]
        receive = send if kind != "reduce" or more["root"] == group.rank() else []
    elif kind == "send":
        send = tensors[0]
    elif kind == "recv":
        receive = tensors[0]
    elif kind != "barrier":
        receive, send = tensors
    if kind in ("send", "recv") and method != "recv_anysource":
        more["peer"] = arguments[1]
    if kind == "all_gather" and len(send) > 1:
        receive = _by_member(receive, group.size())
    if kind == "reduce_scatter" and len(receive) > 1:
        send = _by_member(send, group.size())
    if kind == "all_to_all":
        splits = arguments[2:4] if method != "alltoall" else ((), ())
        more["received"], more["sent"] = (
            parts_of(given, rows, group.size()) for given, rows in zip((receive, send), splits, strict=True)
        )
    return _Request(kind, send, receive, arguments[0] if arguments else None, **more)


def _by_member(tensors: Sequence[Any], members: int) -> list[Any]:
    """Parts of tensors that hold one of each member: by member, then by tensor."""
    chunks = [tensor.detach().view(-1).chunk(members) for tensor in tensors]
    return [part for parts in zip(*chunks, strict=True) for part in parts]


def _flat(tensors: Sequence[Any]) -> Any:
    """One buffer with the bytes of ``tensors``: the memory of one that is in a piece, else a copy."""
    parts = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


_METHODS: dict[CallKind, str] = {
    "all_reduce": "allreduce allreduce_coalesced",
    "all_gather": "allgather all_gather_single _allgather_base all_gather_single_coalesced "
    "allgather_into_tensor_coalesced",
    "reduce_scatter": "reduce_scatter reduce_scatter_single _reduce_scatter_base reduce_scatter_single_coalesced "
    "reduce_scatter_tensor_coalesced",
    "all_to_all": "all_to_all_single alltoall_base alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv recv_anysource",
    "barrier": "barrier monitored_barrier",
}
_PASSED_ON = (
    "_get_backend _start_coalescing _end_coalescing _get_backend_name _get_sequence_number_for_group "
    "_set_sequence_number_for_group _wait_for_pending_works _has_hooks _enable_collectives_timing abort shutdown "
    "set_timeout get_group_store allgather_coalesced"
)
_OF_WORK = "exception get_future_result is_completed is_success result synchronize source_rank _source_rank"


def _add_call(method: str, kind: CallKind) -> None:
    def call(self: RankGroup, *args: Any, **kwargs: Any) -> Any:
        options = kwargs.get("opts", args[-1] if args else None)
        return self.act(
            _request(self, method, kind, args, options), partial(getattr(self._inner, method), *args, **kwargs)
        )

    setattr(RankGroup, method, call)


def _pass_on(owner: type, method: str) -> None:
    setattr(owner, method, lambda self, *args, **kwargs: getattr(self._inner, method)(*args, **kwargs))


for _kind, _names in _METHODS.items():
    for _name in _names.split():
        _add_call(_name, _kind)
for _name in _PASSED_ON.split():
    _pass_on(RankGroup, _name)
for _name in _OF_WORK.split():
    _pass_on(RankWork, _name)


def take_over(course: Course, *, strict: bool) -> None:
    """From now on all groups of this process are ``RankGroup``s.

    "fake", which ``DeviceMesh`` asks for with dimensions of one rank, passes. For a backend of GPUs a sentence is
    printed, or with ``strict`` raised.
    """

    def create(opts: Any, _: Any = None) -> RankGroup:
        ranks = list(opts.global_ranks_in_group) or range(opts.group_size)
        return RankGroup(opts.store, opts.group_rank, opts.timeout, ranks, course)

    dist.Backend.register_backend(_BACKEND, create, extended_api=True, devices=["cpu"])
    for place, original in ((0, c10d.init_process_group), (2, c10d.new_group)):
        taking = _taking_over(original, place, course, strict)
        for module in (dist, c10d, device_mesh):
            setattr(module, original.__name__, taking)


def _taking_over(original: Callable[..., Any], place: int, course: Course, strict: bool) -> Callable[..., Any]:
    """``original``, which makes a group, with our backend instead of its argument number ``place``."""

    @wraps(original)
    def take(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        backend = given[place] if len(given) > place else kwargs.get("backend")
        if backend == "fake":
            return original(*args, **kwargs)
        name = gpu_backend(backend)
        if name and strict:
            raise ConfigError(f"the script asks for {name}, but this is a CPU: ask for gloo")
        if name and place == course.rank.rank == 0:
            print(f"railyard: the script asks for {name}; CPU: gloo is taken instead", file=sys.stderr)
        if len(given) > place:
            given[place] = f"cpu:{_BACKEND}"
        else:
            kwargs["backend"] = f"cpu:{_BACKEND}"
        with course.making_group(original.__name__):
            group = original(*given, **(kwargs | {"device_id": None, "pg_options": None}))
        call_it_gloo(dist.group.WORLD if place == 0 else group)
        return group

    return take
