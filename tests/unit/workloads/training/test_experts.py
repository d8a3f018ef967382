"""Experts: counts of a published model, and how tokens choose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.training.shape import ModelShape, popularity, stage_units

DEEPSEEK = ModelShape(
    layers=28,
    hidden=2048,
    sequence=4096,
    ffn_hidden=10944,
    heads=16,
    vocabulary=102400,
    experts=64,
    top_k=6,
    expert_ffn_hidden=1408,
    shared_experts=2,
    dense_layers=1,
)


def shape(**experts: Any) -> ModelShape:
    return ModelShape(layers=2, hidden=8, sequence=8, heads=1, **experts)


def test_parameters_of_deepseek_moe_16b() -> None:
    """arXiv 2401.06066, section 5: 16.4 B parameters in all, about 2.8 B of them active."""
    vocabulary = 2 * DEEPSEEK.vocabulary * DEEPSEEK.hidden
    units = [unit for unit in stage_units(DEEPSEEK, 0, 1, 1) if unit.name.startswith("u")]
    assert [unit.expert_parameters > 0 for unit in units] == [False] + [True] * 27
    whole = sum(unit.parameters + unit.expert_parameters for unit in units) + vocabulary
    assert whole == pytest.approx(16.4e9, rel=0.005)
    met = DEEPSEEK.beside_experts + DEEPSEEK.top_k * DEEPSEEK.parameters_per_expert
    active = DEEPSEEK.parameters_per_layer + 27 * met + vocabulary
    assert active == pytest.approx(2.8e9, rel=0.02)


def test_a_layer_with_experts_by_hand() -> None:
    one = 3 * 2048 * 1408
    attention = 4 * 2048**2
    assert DEEPSEEK.expert_parameters == 64 * one
    assert DEEPSEEK.beside_experts == attention + 2 * 2048 + 64 * 2048 + 2 * one
    assert DEEPSEEK.parameters_per_expert == one
    scores = 2 * 3 * 4096**2 * 2048
    met = attention + 64 * 2048 + 8 * one
    assert DEEPSEEK.layer_flops(3) == pytest.approx(2 * met * 3 * 4096 + scores)
    assert DEEPSEEK.routed_flops(3) == pytest.approx(2 * 6 * one * 3 * 4096)


def test_a_layer_without_experts_counts_by_its_arithmetic() -> None:
    dense, usual, *_ = (unit for unit in stage_units(DEEPSEEK, 0, 2, 1) if unit.name.startswith("u"))
    assert usual.layers == 1.0
    assert dense.layers == pytest.approx(DEEPSEEK.dense_flops(1) / DEEPSEEK.layer_flops(1))
    assert dense.parameters == DEEPSEEK.parameters_per_layer
    second = [unit.expert_parameters > 0 for unit in stage_units(DEEPSEEK, 1, 2, 1) if unit.name.startswith("u")]
    assert second == [True] * 14, "the first layer of the model is not the first of every stage"


def test_every_second_layer_after_the_dense_ones() -> None:
    every_second = shape(experts=4, dense_layers=1, moe_every=2)
    assert [every_second.has_experts(i) for i in range(6)] == [False, True, False, True, False, True]


@given(count=st.integers(1, 40), data=st.data(), skew=st.floats(0, 4), seed=st.integers(0, 9))
def test_popularities_are_shares_and_nobody_is_taken_twice_by_a_token(
    count: int, data: st.DataObject, skew: float, seed: int
) -> None:
    top_k = data.draw(st.integers(1, count))
    shares = popularity(count, top_k, skew, seed)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0 and max(shares) <= 1 / top_k * (1 + 1e-9)
    ep = data.draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
    loads = shape(experts=count, top_k=top_k, expert_skew=skew, expert_seed=seed).expert_loads(ep)
    assert sum(loads) == pytest.approx(ep)


def test_zipf_by_hand_and_by_seed() -> None:
    shares = popularity(4, 1, 1.0, 3)
    assert sorted(shares, reverse=True) == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])
    assert shares == popularity(4, 1, 1.0, 3)
    assert len({popularity(4, 1, 1.0, seed) for seed in range(8)}) > 1
    assert popularity(4, 1) == (0.25,) * 4
    # 12/25 is more than a third; the other two thirds go on by Zipf.
    assert sorted(popularity(4, 3, 1.0))[-1] == pytest.approx(1 / 3)
