"""The process group of a rank that runs a user's script on this network: gloo inside, each call seen. Needs torch.

Whatever backend the script asks for, its groups are of ``RankGroup``. torch calls it from Python, and from C++ where a
call is part of a graph or of DDP. Names of methods are those of torch 2.13 and older ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import _create_work_from_future
from torch.optim.optimizer import register_optimizer_step_post_hook

from railyard.errors import AgentError, ConfigError
from workloads.pytorch.course import Asked, Course
from workloads.pytorch.trace import Call, CallKind

BACKEND = "railyard"
_CPU = torch.device("cpu")
_REDUCE = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}
_Tensors = Sequence[Any]


@dataclass(frozen=True)
class _Request:
    """What one call of torch asks for: parts to ``send`` and to ``receive``, in their order in a buffer.

    ``bytes``, ``sent`` and ``received`` as in ``Call``; ``root`` and ``peer`` are positions in the group. ``result`` is
    what the future of the call holds.
    """

    kind: CallKind
    bytes: int
    send: _Tensors = ()
    receive: _Tensors = ()
    result: Any = None
    reduce: Any = None
    root: int | None = None
    peer: int | None = None
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()


class RankWork(dist.Work):  # type: ignore[misc]  # torch has no types here
    """The work of one call: waits are seen, those of DDP too, which waits for futures at the end of a backward pass."""

    def __init__(self, inner: Any, asked: Asked, course: Course) -> None:
        super().__init__()
        self._inner, self._asked, self._course = inner, asked, course
        if asked.recorded is not None and not asked.on_rail:
            with suppress(RuntimeError):  # a send or receive of gloo has no future
                inner.get_future().add_done_callback(lambda _: course.over(asked.recorded))

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        with self._course.waiting(self._asked):
            return bool(self._inner.wait(timeout))

    def get_future(self) -> Any:
        if torch._C._current_graph_task_id() != -1:
            _at_end_of_backward(self)
        return self._inner.get_future()


_in_backward: list[RankWork] = []


def _at_end_of_backward(work: RankWork) -> None:
    """Wait for ``work`` when the backward pass ends, as DDP does then, unseen."""
    if not _in_backward:
        torch.autograd.Variable._execution_engine.queue_callback(_wait_for_all)
    _in_backward.append(work)


def _wait_for_all() -> None:
    works = list(_in_backward)
    _in_backward.clear()
    for work in works:
        work.wait()


def _forward(owner: Any, name: str) -> None:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._inner, name)(*args, **kwargs)

    setattr(owner, name, forward)


for _name in ("exception", "get_future_result", "is_completed", "is_success", "result", "synchronize", "source_rank"):
    _forward(RankWork, _name)
_forward(RankWork, "_source_rank")


class RankGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A group of ``ranks`` of the job, the calls of which go to ``course``, and on to gloo or its carrier."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, ranks: Sequence[int], course: Course):
        super().__init__(rank, size)
        self._ranks, self._place, self._course = tuple(ranks), rank, course
        self._name = self._description = ""
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        gloo._set_sequence_number_for_group()
        self._inner = dist.ProcessGroup(dist.PrefixStore("inner", store), rank, size)
        self._inner._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._inner._register_backend(_CPU, dist.ProcessGroup.BackendType.GLOO, gloo)

    def getBackendName(self) -> str:
        return BACKEND  # with "gloo" DDP looks for a backend of that type inside

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
        """Take a call of the script; ``plain`` lets gloo do it. Returns the call's work (None: it is done)."""
        if len(self._ranks) == 1:
            return plain()
        asked = self._course.ask(self._call(request), *self._channels(request))
        try:
            work = self._carry(asked, request) if asked.on_rail else plain()
        finally:
            self._course.pace.go()
        if work is None:
            self._course.over(asked.recorded)
            return None
        return RankWork(work, asked, self._course)

    def _call(self, request: _Request) -> Call:
        tensors = [*request.send, *request.receive]
        return Call(
            step=0,
            kind=request.kind,
            ranks=self._ranks,
            bytes=request.bytes,
            dtype=_dtype(tensors[0]) if tensors else "",
            label=self._description,
            peer=None if request.peer is None else self._ranks[request.peer],
            root=None if request.root is None else self._ranks[request.root],
            sent=request.sent,
            received=request.received,
        )

    def _channels(self, request: _Request) -> tuple[str, str]:
        """The channel of a call, and that on which the others must make theirs."""
        if request.peer is None:
            return self._name, self._name
        ends = (self._place, request.peer) if request.kind == "send" else (request.peer, self._place)
        names = [f"{self._name} {kind} {ends[0]}>{ends[1]}" for kind in ("send", "recv")]
        return (names[0], names[1]) if request.kind == "send" else (names[1], names[0])

    def _carry(self, asked: Asked, request: _Request) -> Any:
        """Give a call of the record to the carrier; the buffers are the script's again when the future is set."""
        course = self._course
        assert course.carrier is not None and asked.recorded is not None
        future: Any = torch.futures.Future()
        send, _ = _flat(request.send, filled=True)
        receive, own = (send, False) if request.kind == "all_reduce" else _flat(request.receive, filled=False)
        if request.kind == "all_reduce" and len(request.send) == 1 and request.send[0].is_contiguous():
            own = True

        def then(error: Exception | None) -> None:
            if error is not None:
                future.set_exception(RuntimeError(str(error)))
                return
            if not own:
                _spread(receive, request.receive)
            future.set_result(request.result)

        course.carrier.carry(
            asked.recorded,
            request.kind,
            _dtype([*request.send, *request.receive][0]),
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
            if request.reduce == operation:  # its text is an address
                return name
        raise AgentError(
            f"rank {self._course.rank.rank} asks for {request.kind} with another operation than {', '.join(_REDUCE)} "
            f"over ranks {', '.join(map(str, self._ranks))}, which the rails do not carry"
        )


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _size(tensors: _Tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _list(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _nested(tensors: Any) -> list[Any]:
    """The first of a list of lists, as of one device; one list alone is taken as it is."""
    return _list(tensors[0] if tensors and not isinstance(tensors[0], torch.Tensor) else tensors)


def _bytes_of(tensor: Any) -> Any:
    return tensor.detach().reshape(-1).view(torch.uint8)


def _flat(tensors: _Tensors, *, filled: bool) -> tuple[Any, bool]:
    """One buffer of bytes for ``tensors``, and whether it is their own memory, as that of one in a piece."""
    if len(tensors) == 1 and tensors[0].is_contiguous():
        return _bytes_of(tensors[0]), True
    if not filled or not tensors:
        return torch.empty(_size(tensors), dtype=torch.uint8), False
    return torch.cat([_bytes_of(tensor) for tensor in tensors]), False


def _spread(buffer: Any, tensors: _Tensors) -> None:
    for tensor, part in zip(tensors, buffer.split([_size([tensor]) for tensor in tensors]), strict=True):
        tensor.detach().copy_(part.view(tensor.dtype).view(tensor.shape))


def _parts(tensors: _Tensors, count: int) -> list[Any]:
    """By member, then by tensor: the parts of tensors that hold one of each member."""
    return [
        part
        for parts in zip(*(tensor.detach().view(-1).chunk(count) for tensor in tensors), strict=True)
        for part in parts
    ]


# -- what each method of a process group asks for ----------------------------------------------------


def _all_reduce(group: RankGroup, tensors: Any, opts: Any = None, *_: Any, **__: Any) -> _Request:
    given = _list(tensors)
    return _Request("all_reduce", _size(given), given, given, given, reduce=getattr(opts, "reduceOp", None))


def _all_gather(group: RankGroup, outputs: Any, inputs: Any, *_: Any, **__: Any) -> _Request:
    given, gathered = _list(inputs), _nested(outputs)
    return _Request("all_gather", _size(given) * group.size(), given, gathered, [gathered])


def _all_gather_single(group: RankGroup, output: Any, given: Any, *_: Any, **__: Any) -> _Request:
    outputs, inputs = _list(output), _list(given)
    receive = outputs if len(outputs) == 1 else _parts(outputs, group.size())
    return _Request("all_gather", _size(inputs) * group.size(), inputs, receive, outputs)


def _reduce_scatter(group: RankGroup, outputs: Any, inputs: Any, opts: Any = None, *_: Any, **__: Any) -> _Request:
    given, kept = _nested(inputs), _list(outputs)
    return _Request("reduce_scatter", _size(given), given, kept, kept, reduce=getattr(opts, "reduceOp", None))


def _reduce_scatter_single(group: RankGroup, output: Any, given: Any, opts: Any = None, *_: Any, **__: Any) -> _Request:
    outputs, inputs = _list(output), _list(given)
    send = inputs if len(inputs) == 1 else _parts(inputs, group.size())
    reduce = getattr(opts, "reduceOp", None)
    return _Request("reduce_scatter", _size(inputs), send, outputs, outputs, reduce=reduce)


def _all_to_all_single(
    group: RankGroup, output: Any, given: Any, output_rows: Any = (), input_rows: Any = (), *_: Any, **__: Any
) -> _Request:
    return _Request(
        "all_to_all",
        _size([given]),
        [given],
        [output],
        [output],
        sent=_split(given, input_rows, group.size()),
        received=_split(output, output_rows, group.size()),
    )


def _split(tensor: Any, rows: Sequence[int], members: int) -> tuple[int, ...]:
    """Bytes of each member's part: so many ``rows`` (none given: as many of each)."""
    if not rows:
        return (_size([tensor]) // members,) * members
    row = _size([tensor]) // max(1, tensor.shape[0])
    return tuple(count * row for count in rows)


def _all_to_all(group: RankGroup, outputs: Any, inputs: Any, *_: Any, **__: Any) -> _Request:
    given, kept = _list(inputs), _list(outputs)
    sent, received = (tuple(_size([part]) for part in parts) for parts in (given, kept))
    return _Request("all_to_all", _size(given), given, kept, kept, sent=sent, received=received)


def _broadcast(group: RankGroup, tensors: Any, opts: Any = None, *_: Any, **__: Any) -> _Request:
    given = _list(tensors)
    return _Request("broadcast", _size(given), given, given, given, root=_root(opts))


def _reduce(group: RankGroup, tensors: Any, opts: Any = None, *_: Any, **__: Any) -> _Request:
    given, root = _list(tensors), _root(opts)
    receive = given if root == group.rank() else []
    return _Request("reduce", _size(given), given, receive, given, reduce=getattr(opts, "reduceOp", None), root=root)


def _gather(group: RankGroup, outputs: Any, inputs: Any, opts: Any = None, *_: Any, **__: Any) -> _Request:
    given, gathered = _list(inputs), _nested(outputs)
    return _Request("gather", _size(given) * group.size(), given, gathered, gathered, root=_root(opts))


def _scatter(group: RankGroup, outputs: Any, inputs: Any, opts: Any = None, *_: Any, **__: Any) -> _Request:
    kept, given = _list(outputs), _nested(inputs)
    return _Request("scatter", _size(kept) * group.size(), given, kept, kept, root=_root(opts))


def _send(group: RankGroup, tensors: Any, peer: int, *_: Any, **__: Any) -> _Request:
    return _Request("send", _size(tensors), tensors, (), None, peer=peer)


def _recv(group: RankGroup, tensors: Any, peer: int, *_: Any, **__: Any) -> _Request:
    return _Request("recv", _size(tensors), (), tensors, tensors, peer=peer)


def _recv_any(group: RankGroup, tensors: Any, *_: Any, **__: Any) -> _Request:
    return _Request("recv", _size(tensors), (), tensors, tensors)


def _barrier(group: RankGroup, *_: Any, **__: Any) -> _Request:
    return _Request("barrier", 0)


def _root(opts: Any) -> int:
    return int(getattr(opts, "rootRank", 0))


_REQUESTS: dict[Callable[..., _Request], str] = {
    _all_reduce: "allreduce allreduce_coalesced",
    _all_gather: "allgather",
    _all_gather_single: "all_gather_single _allgather_base all_gather_single_coalesced allgather_into_tensor_coalesced",
    _reduce_scatter: "reduce_scatter",
    _reduce_scatter_single: "reduce_scatter_single _reduce_scatter_base reduce_scatter_single_coalesced "
    "reduce_scatter_tensor_coalesced",
    _all_to_all_single: "all_to_all_single alltoall_base",
    _all_to_all: "alltoall",
    _broadcast: "broadcast",
    _reduce: "reduce",
    _gather: "gather",
    _scatter: "scatter",
    _send: "send",
    _recv: "recv",
    _recv_any: "recv_anysource",
    _barrier: "barrier monitored_barrier",
}


def _add_method(name: str, request: Callable[..., _Request]) -> None:
    def method(self: RankGroup, *args: Any, **kwargs: Any) -> Any:
        return self.act(request(self, *args, **kwargs), partial(getattr(self._inner, name), *args, **kwargs))

    setattr(RankGroup, name, method)


for _request, _names in _REQUESTS.items():
    for _name in _names.split():
        if hasattr(dist.ProcessGroup, _name):
            _add_method(_name, _request)
_PASSED_ON = (
    "_get_backend _start_coalescing _end_coalescing _get_backend_name _get_sequence_number_for_group "
    "_set_sequence_number_for_group _wait_for_pending_works _has_hooks _enable_collectives_timing abort shutdown "
    "set_timeout get_group_store allgather_coalesced"
)
for _name in _PASSED_ON.split():
    if hasattr(dist.ProcessGroup, _name):
        _forward(RankGroup, _name)


# -- taking the place of the script's backend --------------------------------------------------------


def take_over(course: Course, *, strict: bool) -> None:
    """From now on all groups of this process are ``RankGroup``s, whatever backend a script asks for, and steps count.

    "fake", which ``DeviceMesh`` uses for dimensions of one rank, passes. For a backend of GPUs a sentence is printed,
    or with ``strict`` it is an error.
    """

    def create(opts: Any, _: Any = None) -> RankGroup:
        ranks = list(opts.global_ranks_in_group) or range(opts.group_size)
        return RankGroup(opts.store, opts.group_rank, opts.group_size, opts.timeout, ranks, course)

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu"])
    for name in ("init_process_group", "new_group"):
        original = getattr(c10d, name)
        taking = _taking_over(original, course, strict)
        for module in (dist, c10d, device_mesh):
            if getattr(module, name, None) is original:
                setattr(module, name, taking)
    stepping: list[Any] = []

    def stepped(optimizer: Any, *_: Any) -> None:
        stepping[:] = stepping or [optimizer]
        if optimizer is stepping[0]:
            course.stepped()

    register_optimizer_step_post_hook(stepped)


def _taking_over(original: Callable[..., Any], course: Course, strict: bool) -> Callable[..., Any]:
    place = 0 if original.__name__ == "init_process_group" else 2
    told: list[str] = []

    @wraps(original)
    def take(*args: Any, **kwargs: Any) -> Any:
        positional = len(args) > place
        backend = str(args[place] if positional else kwargs.get("backend") or "").lower()
        if backend == "fake":
            return original(*args, **kwargs)
        if backend in ("nccl", "xccl", "ucc", "mpi") and not told:
            if strict:
                raise ConfigError(f"the script asks for {backend}, but this is a CPU: ask for gloo")
            told.append(backend)
            if course.rank.rank == 0:
                print(f"railyard: the script asks for {backend}; CPU: gloo is taken instead", file=sys.stderr)
        own = f"cpu:{BACKEND}"
        given = [*args[:place], own, *args[place + 1 :]] if positional else args
        kwargs = {**kwargs, "device_id": None, "pg_options": None} | ({} if positional else {"backend": own})
        with course.making_group(original.__name__):
            group = original(*given, **kwargs)
        made = dist.group.WORLD if original.__name__ == "init_process_group" else group
        if isinstance(made, RankGroup):
            c10d._world.pg_map[made] = "gloo", cast(Any, c10d._world.pg_map[made])[1]
        return group

    return take
