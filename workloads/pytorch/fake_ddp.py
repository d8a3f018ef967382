"""The reducer of ``DistributedDataParallel`` for tensors without data: torch's own, in C++, reads them. Needs torch.

The same buckets (torch assigns them), the same calls in the same order, the small ones of the set-up too. After the
first step the buckets are made anew in the order in which gradients were ready, as torch does.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork

_ASKED: list[Any] = []
"""The works whose futures were asked for: those that a hook of a bucket began."""


class Silent:
    """Has every method, none of which does a thing: what torch logs, and modes that are of no account here."""

    def __init__(self, *_: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def gradient_bucket(index: int, params: list[Any], *, last: bool) -> SimpleNamespace:
    """Torch's ``GradBucket``, which a communication hook gets, with a buffer of shapes."""
    held = [torch.empty(sum(param.numel() for param in params), dtype=params[0].dtype)]
    return SimpleNamespace(
        index=lambda: index,
        is_last=lambda: last,
        parameters=lambda: params,
        buffer=lambda: held[0],
        set_buffer=lambda buffer: held.__setitem__(0, buffer),
        gradients=lambda: [part.view(param.shape) for part, param in
                           zip(held[0].split([param.numel() for param in params]), params, strict=True)],
    )  # fmt: skip


class Reducer(Silent):
    """Torch's ``dist.Reducer``, as far as ``DistributedDataParallel`` calls it. ``made``: a script uses one."""

    made = False

    def __init__(self, params: list[Any], buckets: list[list[int]], limits: list[int], group: Any, *more: Any) -> None:
        _, cap, unused, _, _, first_cap, skip_unused, _, limits_later, *_ = more
        Reducer.made = True
        self._params, self._group, self._unused, self._skip_unused = params, group, unused, skip_unused
        self._limits = list(limits_later) or [first_cap, cap]  # torch crashes with an empty list
        self._ready: list[int] = []
        self._rebuilt = self._expecting = False
        self._works: list[Any] = []
        self.hook: tuple[Any, Any] | None = None
        self._assign(buckets)
        for number, param in enumerate(params):
            param.register_post_accumulate_grad_hook(lambda _, number=number: self._done(number))

    def _assign(self, buckets: list[list[int]]) -> None:
        self._buckets = buckets
        self._bucket_of = {number: place for place, bucket in enumerate(buckets) for number in bucket}

    def prepare_for_backward(self, outputs: list[Any]) -> None:
        self._expecting, self._next, self._left = True, 0, [len(bucket) for bucket in self._buckets]
        self._works = []
        if self._unused:
            used = _parameters_below(outputs)
            for number, param in enumerate(self._params):
                if id(param) not in used:
                    self._done(number)

    def _done(self, number: int) -> None:
        """A gradient is ready: begin the buckets whose turn it is and which are full."""
        if not self._expecting:
            return
        if not self._unused and not self._rebuilt:
            self._ready.append(number)
        self._left[self._bucket_of[number]] -= 1
        while self._next < len(self._buckets) and not self._left[self._next]:
            self._begin(self._next)
            self._next += 1
        if self._next == len(self._buckets):
            self._expecting = False
            if self._unused and not self._skip_unused:
                used = torch.empty(len(self._params), dtype=torch.int32)
                self._works.append(dist.all_reduce(used, group=self._group, async_op=True))

    def _begin(self, place: int) -> None:
        if not self._works and torch._C._current_autograd_node() is not None:
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        params = [self._params[number] for number in self._buckets[place]]
        bucket = gradient_bucket(place, params, last=place == len(self._buckets) - 1)
        if self.hook is None:
            bucket.buffer().div_(self._group.size())
            self._works.append(dist.all_reduce(bucket.buffer(), group=self._group, async_op=True))
        else:
            _ASKED.clear()
            self.hook[1](self.hook[0], bucket)
            self._works += _ASKED

    def _finish(self) -> None:
        for work in self._works:  # torch waits for all buckets when the backward pass is over
            work.wait()
        self._works = []

    def _rebuild_buckets(self) -> bool:
        if self._unused or self._rebuilt or not self._ready:
            return False
        ready = [self._params[number] for number in self._ready]
        buckets, _ = dist._compute_bucket_assignment_by_size(ready, self._limits, [], self._ready)
        for length in (len(self._params) + 1, len(buckets)):  # the first rank tells the others its buckets
            told = torch.empty(length, dtype=torch.int32)
            dist.broadcast(told, src=dist.get_global_rank(self._group, 0), group=self._group)
        self._assign(buckets)
        self._rebuilt = True
        return True


def _parameters_below(outputs: list[Any]) -> set[int]:
    """Ids of the parameters that outputs depend on, by the graph of autograd."""
    nodes = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen, used = set(nodes), set()
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):
            used.add(id(node.variable))
        more = {below for below, _ in node.next_functions if below is not None} - seen
        seen |= more
        nodes += more
    return used


def _verify(group: Any, params: list[Any], logger: Any = None) -> None:
    """The calls by which ranks compare the shapes of their parameters."""
    sizes = torch.empty(group.size(), dtype=torch.int64)
    getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(  # its name since torch 2.13
        sizes, torch.empty(1, dtype=torch.int64), group=group
    )
    shapes = torch.empty(sum(2 * param.dim() for param in params), dtype=torch.int64)
    dist.broadcast(shapes, src=dist.get_global_rank(group, 0), group=group)


def _future(work: Any) -> Any:
    """The future of a call in a hook, over at once."""
    _ASKED.append(work)
    future = torch.futures.Future()
    future.set_result([torch.empty(0)])
    return future


def install() -> None:
    """Put the reducer in the place of torch's."""
    import torch.nn.parallel.distributed as ddp

    dist.Reducer, dist.Logger = Reducer, Silent
    ddp._verify_param_shape_across_processes = _verify
    FakeWork.get_future = _future
    dist._register_comm_hook = lambda reducer, state, hook: setattr(reducer, "hook", (state, hook))
