"""Tensors in the slots of every schedule: any type, any size, any reduction comes out as torch would have it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from agents.driven_rank import SIZES, Made, encoded, expected
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import ConfigError
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.program import Group, Send
from workloads.rank.exchange import MessagePart
from workloads.rank.flows import Flow
from workloads.rank.in_flight import InFlight
from workloads.rank.tensors import DType, Layout, Piece, Reduce, ScriptCall
from workloads.schedule import Schedule

PLANS = [(name, kind) for name, algorithm in ALGORITHMS.items() for kind in algorithm.kinds]


def carry(plan: Schedule, calls: list[ScriptCall], inputs: list[Any], sizes: list[int]) -> list[Any]:
    """The outputs of all positions (uint8, of ``sizes``), with every transfer of each round at once."""
    layouts = [call.layout(plan, me) for me, call in enumerate(calls)]
    buffers = [np.zeros(layout.words, dtype=np.float32) for layout in layouts]
    for layout, buffer, tensor in zip(layouts, buffers, inputs, strict=True):
        for offset, start, count in layout.input:
            buffer.view(np.uint8)[start : start + count] = tensor.view(np.uint8)[offset : offset + count]
    by_round = defaultdict(list)
    for t in plan.transfers:
        by_round[t.round].append(t)

    flights = [in_flight(*both) for both in zip(calls, layouts, strict=True)]
    for flight, buffer in zip(flights, buffers, strict=True):
        flight.buffer = buffer
    for _, transfers in sorted(by_round.items()):
        for t in transfers:
            start, end = layouts[t.src].bounds[t.chunk]
            flights[t.src].read(MessagePart(id(t), t.dst, t.chunk, 0, start, end, False))
        for t in transfers:
            start, end = layouts[t.dst].bounds[t.slot]
            values = np.frombuffer(flights[t.src].contents.pop(id(t)), dtype=np.float32)
            flights[t.dst].staged[id(t)] = values
            flights[t.dst].apply(MessagePart(id(t), t.src, t.slot, 0, start, end, t.op == "reduce"))
    return [output(*own, plan.n) for own in zip(calls, layouts, buffers, sizes, strict=True)]


def in_flight(call: ScriptCall, layout: Layout) -> InFlight:
    group = Group("g", "dp", (0, 1))
    flight = InFlight(0, Send(0, "", "g", 1, 4), 0, group, Flow(0, 0, 0, False), layout.words, 0.0, layout=layout)
    flight.add = call.add
    return flight


def output(call: ScriptCall, layout: Layout, buffer: Any, size: int, n: int) -> Any:
    call.finish(buffer, n)
    out = np.zeros(size, dtype=np.uint8)
    for offset, start, count in layout.output:
        out[offset : offset + count] = buffer.view(np.uint8)[start : start + count]
    return out


def check(plan: Schedule, made: Made) -> None:
    n, size = plan.n, SIZES[made.dtype]
    pairs = [expected(made, list(range(n)), me, 1) for me in range(n)]
    inputs = [encoded(give, made.dtype) for give, _ in pairs]
    wanted = [encoded(want, made.dtype) for _, want in pairs]
    calls = []
    for me in range(n):
        sent, received = [], []
        if made.matrix:
            sent, received = [size * c for c in made.matrix[me]], [size * row[me] for row in made.matrix]
        total = {"all_gather": n * inputs[me].nbytes, "scatter": wanted[me].nbytes}.get(made.kind, inputs[me].nbytes)
        calls.append(
            ScriptCall(plan.kind, total, made.dtype, made.reduce, tuple(sent), tuple(received))  # type: ignore[arg-type]
        )
    outputs = carry(plan, calls, inputs, [want.nbytes for want in wanted])
    for me, (out, want) in enumerate(zip(outputs, wanted, strict=True)):
        assert np.array_equal(out, want.view(np.uint8)), f"position {me} of {plan.title}"


@given(
    st.sampled_from(PLANS),
    st.integers(2, 5),
    st.integers(1, 40),
    st.sampled_from(get_args(DType)),
    st.sampled_from(get_args(Reduce)),
)
def test_any_schedule_carries_any_tensor(
    algorithm: tuple[str, Any], n: int, count: int, dtype: str, reduce: str
) -> None:
    name, kind = algorithm
    if (reduce == "product" and SIZES[dtype] < 4) or (reduce == "avg" and dtype == "bfloat16" and n not in (2, 4)):
        reduce = "sum"  # as these are not exact
    try:
        plan = schedule(kind, n, name)
    except ConfigError:  # an algorithm of other numbers of positions
        return
    check(plan, Made(kind, "", count, dtype, reduce))


@given(st.sampled_from([name for name, kind in PLANS if kind == "all_to_all"]), st.integers(2, 5), st.data())
def test_an_uneven_all_to_all(name: str, n: int, data: st.DataObject) -> None:
    plan = schedule("all_to_all", n, name)
    row = st.tuples(*[st.integers(0, 30)] * n)
    matrix = data.draw(st.tuples(*[row] * n).filter(lambda m: len({c for r in m for c in r}) > 1))
    made = Made("all_to_all", "", 0, data.draw(st.sampled_from(("int64", "bfloat16", "uint8"))), "sum", matrix)
    check(plan, made)
    uneven = ScriptCall("all_to_all", 8, sent=(1,) * (n - 1) + (2,), received=(1,) * n)
    with pytest.raises(ConfigError, match=f"needs {n} sizes, that are equal, as its algorithm moves chunks"):
        uneven.layout(replace(plan, scratch=1), 0)


@given(st.sampled_from(["all_reduce", "reduce_scatter", "all_gather"]), st.integers(1, 40), st.booleans())
def test_lanes_of_different_rates(kind: Any, count: int, wide: bool) -> None:
    ring = schedule(kind, 4, "bidirectional-ring")
    lanes = [50 if number < ring.chunks // 2 else 3 for number in range(ring.chunks)]
    check(replace(ring, weights=tuple(lanes)), Made(kind, "", count, "int64" if wide else "float16"))


def test_bfloat16_is_rounded_to_nearest_even_and_keeps_nan() -> None:
    call = ScriptCall("all_reduce", 8, "bfloat16")
    ours = np.array([0x3F80, 0x3F80, 0x3F81, 0x7FC0], dtype=np.uint16)  # 1, 1, 1 + 2^-7, nan
    theirs = np.array([0x3B80, 0x3C40, 0x3B80, 0x3F80], dtype=np.uint16)  # 2^-8, 1.5 x 2^-7, 2^-8, 1
    words = ours.view(np.float32).copy()
    call.add(words, theirs.view(np.float32))
    assert [hex(bits) for bits in words.view(np.uint16)] == ["0x3f80", "0x3f82", "0x3f82", "0x7fc0"]


def test_a_message_and_an_average_of_whole_numbers() -> None:
    assert ScriptCall("send", 10, "int64").layout(None, 0) == Layout(10, ((0, 4),), (Piece(0, 0, 10),), ())
    assert ScriptCall("recv", 10).layout(None, 1) == Layout(10, ((0, 3),), (), (Piece(0, 0, 10),))
    assert ScriptCall("recv", 0).layout(None, 1).words == 0
    words = np.array([7, -7], dtype=np.int32).view(np.float32)
    ScriptCall("all_reduce", 8, "int32", "avg").finish(words, 2)
    assert list(words.view(np.int32)) == [3, -4]


@pytest.mark.parametrize("sizes", [{"sent": (1, 2)}, {"sent": (1, 2, 3), "received": (1,)}])
def test_sizes_of_another_group_are_refused(sizes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ConfigError, match="an all-to-all over 3 ranks needs 3 sizes"):
        ScriptCall("all_to_all", 9, **sizes).layout(schedule("all_to_all", 3, "direct"), 0)  # type: ignore[arg-type]
