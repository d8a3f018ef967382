from __future__ import annotations

from itertools import pairwise

import networkx
from hypothesis import given
from hypothesis import strategies as st

from workloads.training.step import Pass, one_f_one_b

stages_and_microbatches = st.tuples(st.integers(1, 8), st.integers(1, 20))


def test_the_order_of_the_paper() -> None:
    # Narayanan et al., SC'21, figure 4 (top): 4 stages, 8 microbatches, the first stage fills with 3.
    assert " ".join(map(str, one_f_one_b(0, 4, 8))) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert " ".join(map(str, one_f_one_b(3, 4, 8))) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"


@given(stages_and_microbatches)
def test_each_microbatch_forward_then_backward_once(shape: tuple[int, int]) -> None:
    stages, microbatches = shape
    for stage in range(stages):
        order = one_f_one_b(stage, stages, microbatches)
        assert len(order) == 2 * microbatches
        for m in range(microbatches):
            assert order.index(Pass("forward", m)) < order.index(Pass("backward", m))


@given(stages_and_microbatches)
def test_at_most_the_distance_to_the_end_is_in_flight(shape: tuple[int, int]) -> None:
    stages, microbatches = shape
    for stage in range(stages):
        flying, most = 0, 0
        for step in one_f_one_b(stage, stages, microbatches):
            flying += 1 if step.direction == "forward" else -1
            most = max(most, flying)
        assert most == min(stages - stage, microbatches)


@given(stages_and_microbatches)
def test_no_stage_waits_in_a_circle(shape: tuple[int, int]) -> None:
    stages, microbatches = shape
    graph = networkx.DiGraph()
    for stage in range(stages):
        order = one_f_one_b(stage, stages, microbatches)
        for before, after in pairwise(order):
            graph.add_edge((stage, before), (stage, after))
        for m in range(microbatches):
            if stage:
                graph.add_edge((stage - 1, Pass("forward", m)), (stage, Pass("forward", m)))
                graph.add_edge((stage, Pass("backward", m)), (stage - 1, Pass("backward", m)))
    assert networkx.is_directed_acyclic_graph(graph)
