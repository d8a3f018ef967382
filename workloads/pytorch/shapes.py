"""Tensors that have shapes and no data, and what their operations cost; needs torch.

Torch's ``FakeTensorMode`` finds the shapes that an operation returns. A training step repeats its operations for every
layer and microbatch, so what it found is kept here, by operation and shapes, in a memo that is several times cheaper
than its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import _DISPATCH_META_HANDLERS, FakeTensor, FakeTensorMode
from torch.utils.flop_counter import flop_registry

from railyard.errors import ConfigError

aten = torch.ops.aten
MOST_KNOWN = 1 << 16
"""Most elements of a tensor whose data are known: more are shapes alone."""
_DEVICE = torch.ops.prim.device.default
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_LIFTS = (aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default)

Act = Callable[[Any, Sequence[Any], Sequence[Any], Mapping[str, Any]], Any]


class _Output(NamedTuple):
    """One output: the argument ``same``, a view of the argument ``base``, or with neither a new tensor."""

    same: int = -1
    base: int = -1
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: Any = None
    offset: int = 0
    device: Any = None


class _Known(NamedTuple):
    """Costs and outputs of an operation (None: torch has to find them again), in a container (None: one alone)."""

    flops: float
    moved_bytes: float
    outputs: tuple[_Output | None, ...] | None
    container: Callable[[list[Any]], Any] | None


class Shapes(FakeTensorMode):  # type: ignore[misc]
    """The mode under which all tensors are shapes; sums up ``flops`` and ``moved_bytes`` of their operations."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.cache_enabled = False
        # which keeps weak references to tensors: then ``Module.to`` cannot swap a parameter of shapes for another
        self.fake_tensor_converter.set_tensor_memo = lambda *_: None
        fake_tensor.CONSTANT_NUMEL_LIMIT = MOST_KNOWN  # of tensors that a script makes of its own numbers
        self.flops = self.moved_bytes = 0.0
        self._memo: dict[Any, _Known] = {}
        self._blank: dict[str, Any] = {}  # attributes of a fake tensor without known data
        self._acts: dict[int, Act] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No, which spares a wrapper around each operation: nothing is compiled here."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is _DEVICE:
            return args[0].device
        for kind in types:
            if kind is not FakeTensor and kind is not torch.nn.Parameter:
                return NotImplemented  # a DTensor, say: it comes back as operations on plain tensors
        act = self._acts.get(id(func))  # to hash an operation takes longer
        if act is None:
            act = self._acts[id(func)] = self.act_of(func)
        return act(func, types, args, kwargs or {})

    def act_of(self, func: Any) -> Act:
        """The function that returns the outputs of an operation, from it, types of its tensors, and its arguments."""
        if func in _DISPATCH_META_HANDLERS:
            return lambda func, types, args, kwargs: _DISPATCH_META_HANDLERS[func](args)
        if func.namespace == "profiler":
            return lambda func, types, args, kwargs: func(*args, **kwargs)
        return self.computed

    def computed(self, func: Any, types: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The outputs of an operation on fake tensors, on known ones, or on both."""
        key = _key(func, args, kwargs)
        known = self._memo.get(key) if key is not None else None
        if known is not None and known.outputs is not None:
            self.flops += known.flops
            self.moved_bytes += known.moved_bytes
            made = [output and self._made(output, args) for output in known.outputs]
            return known.container(made) if known.container else made[0]
        if key is None and (real := _real(func, args, kwargs)) is not None:
            return func(*real[0], **real[1])
        if (device := kwargs.get("device")) is not None and device.type not in ("cpu", "meta"):
            raise ConfigError(f'asks for a tensor on {device}; use "cpu" where torch.cuda.is_available() is False')
        before = [_form(tensor) for tensor in tensors_in(args)] if key is not None else []
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if out is not NotImplemented:
            flops, moved = flops_of(func, args, kwargs, out), moved_bytes_of(func, args, kwargs, out)
            self.flops += flops
            self.moved_bytes += moved
            if key is not None:
                unchanged = before == [_form(tensor) for tensor in tensors_in(args)]
                self._memo[key] = _Known(flops, moved, _outputs(out, args) if unchanged else None, _container(out))
        return out

    def _made(self, output: _Output, args: Sequence[Any]) -> Any:
        same, base, shape, stride, dtype, offset, device = output
        if same >= 0:
            return args[same]
        if base >= 0:
            elem = torch.empty_strided((0,), (1,), dtype=dtype, device="meta")
            elem.set_(args[base].untyped_storage(), offset, shape, stride)
        else:
            elem = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        made = torch.Tensor._make_subclass(
            FakeTensor, elem, False, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        if not self._blank:
            self._blank = dict(FakeTensor(self, elem, device).__dict__)
        made.__dict__.update(self._blank)
        made.__dict__["_fake_device"] = device
        return made


def known_data(tensor: Any) -> Any:
    """The real tensor behind ``tensor``, if its data are known, or None."""
    if not isinstance(tensor, FakeTensor):
        return tensor
    return tensor.constant


def _real(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments with real tensors, if all of them are known, small, and none is a single number of torch's own."""
    tensors = [*tensors_in(args), *tensors_in(kwargs.values())]
    if not tensors or func in _LIFTS or not all(tensor.numel() <= MOST_KNOWN for tensor in tensors):
        return None
    if any(known_data(tensor) is None for tensor in tensors):
        return None
    if all(isinstance(tensor, FakeTensor) and tensor.numel() < 2 for tensor in tensors):
        return None

    def real(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return known_data(value)
        return type(value)(map(real, value)) if isinstance(value, (list, tuple)) else value

    return [real(value) for value in args], {name: real(value) for name, value in kwargs.items()}


def _form(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.storage_offset()


def _key(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """A key by which operations with the same outputs are equal; None if there is more to it than shapes."""
    parts: list[Any] = [id(func)]
    if not _add_to_key(parts, args):
        return None
    for name, value in kwargs.items():
        parts.append(name)
        if not _add_to_key(parts, (value,)):
            return None
    return tuple(parts)


def _add_to_key(parts: list[Any], values: Sequence[Any]) -> bool:
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None or value.layout is not torch.strided or value.dtype.is_complex:
                return False
            parts += (value.shape, value.stride(), value.dtype, value.storage_offset(), value._fake_device)
        elif kind in _PLAIN:
            parts += (kind, value)
        elif kind is list or kind is tuple:
            parts.append(len(value))
            if not _add_to_key(parts, value):
                return False
        else:
            return False
    return True


def tensors_in(values: Any) -> Iterator[Any]:
    """The tensors in a sequence, and in those within it."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def _container(out: Any) -> Callable[[list[Any]], Any] | None:
    return list if isinstance(out, list) else tuple if isinstance(out, tuple) else None


def _outputs(out: Any, args: Sequence[Any]) -> tuple[_Output | None, ...] | None:
    """How to make ``out`` again from other arguments of the same shapes; None if that cannot be told."""
    storages = {
        tensor.untyped_storage()._cdata: place for place, tensor in enumerate(args) if isinstance(tensor, FakeTensor)
    }
    nested = {tensor.untyped_storage()._cdata for value in args if not isinstance(value, torch.Tensor)
              for tensor in tensors_in([value])}  # fmt: skip
    outputs: list[_Output | None] = []
    for one in out if isinstance(out, (list, tuple)) else [out]:
        if one is None:
            outputs.append(None)
            continue
        if not isinstance(one, FakeTensor) or one.constant is not None or one.layout is not torch.strided:
            return None
        storage = one.untyped_storage()._cdata
        same = next((place for place, value in enumerate(args) if value is one), -1)
        if same < 0 and storage in nested:
            return None
        if storage not in storages:
            nested.add(storage)  # of two outputs that share memory, neither can be made alone
        outputs.append(_Output(same, storages.get(storage, -1), one.shape, one.stride(), one.dtype,
                               one.storage_offset(), one.fake_device))  # fmt: skip
    return tuple(outputs)


def bytes_of(value: Any) -> int:
    """Bytes of the elements of a tensor, or of those in a list; not of the storage below, which may be larger."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in([value]))


def parts_of(value: Any, rows: Sequence[int] | None, members: int) -> tuple[int, ...]:
    """Bytes of each member's part: of its tensor, or so many ``rows`` of the one (none given: as many of each)."""
    tensors = list(tensors_in([value]))
    if rows:
        row = bytes_of(tensors) // max(1, tensors[0].shape[0])
        return tuple(int(count) * row for count in rows)
    if len(tensors) == members:
        return tuple(map(bytes_of, tensors))
    return (bytes_of(tensors) // members,) * members


def dtype_of(value: Any) -> str:
    """Name of the type of the first tensor in a value; empty without one."""
    return next((str(tensor.dtype).removeprefix("torch.") for tensor in tensors_in([value])), "")


def moved_bytes_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> float:
    """Bytes that an operation reads and writes: of its inputs and outputs, none if they are views or just made."""
    if func.is_view or func.namespace != "aten":
        return 0.0
    read = bytes_of([*args, *kwargs.values()])
    return float(read + (bytes_of(out) if out is not None else bytes_of(args[:1]))) if read else 0.0


def flops_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> float:
    """Floating-point operations: by torch's registry, and those of attention on a CPU, which it leaves out."""
    packet = func._overloadpacket
    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=out))
    if packet is aten._scaled_dot_product_flash_attention_for_cpu:
        return 2 * _product_flops(args[0], args[1])
    if packet is aten._scaled_dot_product_flash_attention_for_cpu_backward:
        return 5 * _product_flops(args[1], args[2])
    return 0.0


def _product_flops(query: Any, key: Any) -> float:
    """Of the product of queries and keys, that attention has twice forward and five times (one anew) backward."""
    return float(2 * prod(query.shape) * key.shape[-2])
