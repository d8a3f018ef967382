"""What the memo of shapes makes is what torch's own mode makes, and what it counts is what operations cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch (docs/torch.md)")

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402

from workloads.pytorch.shapes import Shapes  # noqa: E402

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "new": lambda x: x @ x.t(),
    "view": lambda x: x[1:].view(-1, 2).t()[1],
    "in place": lambda x: x.t().add_(1).mul_(2),
    "several": lambda x: torch.split(x, 2)[1],
    "list in": lambda x: torch.cat([x, x[:1]]),
    "list out": lambda x: torch._foreach_add([x, x], 1)[1],
    "maximum": lambda x: x.max(-1).indices,
    "half": lambda x: x.to(torch.bfloat16),
    "number": lambda x: (x * 2 + True) / 3.0,
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*[x.view(1, 2, 2, 4)] * 3),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_second_time_is_as_the_first(operation: Callable[[Any], Any]) -> None:
    with FakeTensorMode():
        wanted = operation(torch.empty(4, 4))
    mode = Shapes()
    with mode:
        for _ in range(2):
            x = torch.empty(4, 4)
            before, version = mode.flops, x._version
            made = operation(x)
            cost, mode.flops = mode.flops - before, 0.0
            assert type(made) is FakeTensor and made.device == wanted.device
            assert (made.shape, made.stride(), made.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
            assert made.storage_offset() == wanted.storage_offset()
        shares = made.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert shares == (operation in (OPERATIONS["view"], OPERATIONS["in place"], OPERATIONS["several"]))
    assert (x._version > version) == (operation is OPERATIONS["in place"])
    assert cost == {OPERATIONS["new"]: 2 * 4**3, OPERATIONS["attention"]: 2 * 2 * 2 * 2 * 2 * 4}.get(operation, 0)


def test_gradients_cost_twice_the_forward_pass_and_attention_half_as_much_again() -> None:
    mode = Shapes()
    with mode:
        q, w = torch.empty(1, 2, 8, 4, requires_grad=True), torch.empty(4, 4, requires_grad=True)
        y = q @ w
        linear = mode.flops
        torch.nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True).sum().backward()
    attention = 2 * (2 * 2 * 8 * 8 * 4)
    assert linear == 2 * 2 * 8 * 4 * 4
    assert mode.flops == 3 * linear + 3.5 * attention


def test_bytes_are_those_read_and_written_and_views_have_none() -> None:
    mode = Shapes()
    with mode:
        x = torch.empty(8)
        x.view(2, 4).t()
        assert mode.moved_bytes == 0
        x + x
        assert mode.moved_bytes == 3 * 32
        x.add_(1)
        assert mode.moved_bytes == 5 * 32


def test_what_is_known_stays_known_and_what_is_not_does_not_become_it() -> None:
    with Shapes():
        known = torch.tensor([3, 1, 2])
        assert (known * 2).tolist() == [6, 2, 4] and known.sum().item() == 6
        assert type(torch.zeros(3)) is FakeTensor
