"""A training step with experts on real rails: their all-to-alls in every mode, and the ring of gradients after them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.rails.experiment import Rails
from experiments.rails.settings import MODES, make_settings
from experiments.runner import Runner
from measure.live.delivery import payload
from measure.results.results import Results
from railyard.timeline import Event

pytestmark = [pytest.mark.root, pytest.mark.beside]

WORKLOAD = """
name: four-experts
model: {layers: 1, hidden: 2048, sequence: 2048, heads: 16, experts: 4, top_k: 2, expert_ffn_hidden: 1024}
parallelism: {ep: 4}
batch: {local_batch: 4, microbatch: 4}
compute: {forward_ms: 40}
training: {sharding: ddp}
fabric: {servers: 4, gpus_per_server: 1}
"""
EP, DP = "ep.t0.d0.s0", "dp.t0.s0"
RANKS, STEPS, ALL_TO_ALLS = 4, 2, 4
"""Dispatch and combine, forward and backward."""
RING = {frozenset((rank, (rank + 1) % RANKS)) for rank in range(RANKS)}


def test_experts_in_every_mode_get_the_right_values_and_gradients_their_ring(tmp_path: Path) -> None:
    (tmp_path / "experts.yaml").write_text(WORKLOAD)
    experiment = make_settings(
        {
            "workload": str(tmp_path / "experts.yaml"),
            "modes": ["electrical", "on-demand", "rotor", "demand"],
            "delays_ms": [20],
            "steps": STEPS,
            "verify": True,
            "repeats": 1,
            "attempts": 1,
            "scale": {"rate": "1/40"},
        }
    )
    rails = Rails(experiment)
    with Runner(rails, tmp_path / "results") as runner:
        rails.run(runner)
    events = Results.open(tmp_path / "results").events()
    by_mode = {e["mode"]: within(events, e) for e in events if (e.source, e.kind) == ("run", "point")}
    assert list(by_mode) == list(experiment.modes)
    for mode, mine in by_mode.items():
        check_values(mine)
        assert bool(slots_of(mine)) == MODES[mode].slots
    for mode in ("rotor", "demand"):
        check_turns(by_mode[mode])
        check_ring(by_mode[mode])


def within(events: Sequence[Event], point: Event) -> list[Event]:
    return [e for e in events if point.t <= e.t <= (point.end or point.t)]


def slots_of(events: Sequence[Event]) -> list[Event]:
    return [e for e in events if e.source == "controller" and e.kind == "slot"]


def check_values(events: Sequence[Event]) -> None:
    """Everybody's values after every collective, and as many bytes in as out."""
    verified = [e for e in events if e.kind == "verified"]
    assert len(verified) == RANKS * STEPS * (ALL_TO_ALLS + 1)
    assert all(e["wrong"] == 0 for e in verified)
    for group in (EP, DP):
        moved = payload(events, [group])
        assert moved.conserved and moved.sent_bytes > 0
    assert not sum(e["packets"] for e in events if e.kind == "dropped")


def check_turns(events: Sequence[Event]) -> None:
    """In each step a rotation of its own in which every pair meets, once at least for each all-to-all."""
    for step in range(STEPS):
        mine = [slot for slot in slots_of(events) if slot["index"] == step]
        assert [slot["slot"] for slot in mine] == list(range(len(mine)))
        assert {slot["group"] for slot in mine} == {EP}
        met = [frozenset(pair) for slot in mine for pair in slot["pairs"]]
        assert len(set(met)) == RANKS * (RANKS - 1) // 2 and min(map(met.count, met)) >= ALL_TO_ALLS


def check_ring(events: Sequence[Event]) -> None:
    """Once a step, after the last slot, the circuits of the ring come back, and both ports of everybody are used."""
    back = [e for e in events if e.kind == "reconfigure" and e["group"] == DP]
    assert len(back) == STEPS
    for step, change in enumerate(back):
        last = max(slot.end or 0.0 for slot in slots_of(events) if slot["index"] == step)
        reduces = [e for e in events if e.kind == "communicate" and e["group"] == DP and e["step"] == step]
        assert last <= change.t and min(e.t for e in reduces) >= (change.end or 0.0)
        assert {frozenset(((a - 1) // 2, (b - 1) // 2)) for a, b in change["circuits"]} == RING
        assert len(reduces) == RANKS and all(e["lanes"] == [0, 1] for e in reduces)
