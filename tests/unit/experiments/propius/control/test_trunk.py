from __future__ import annotations

from functools import partial

import pytest
from edge.trunk_player import BYTES_PER_S, MBPS, TrunkPlayer
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.control.trunk import LEASE_FACTOR, LEASE_S, CircuitEnded, Granted, TrunkArbiter, TurnTo
from railyard.errors import ControlError

MB = 1_000_000


def order_of(player: TrunkPlayer) -> list[int]:
    return [region for _, what, region in player.log if what == "begin"]


def asked_together(policy: str) -> TrunkPlayer:
    """While region 0 uses the trunk, 2 asks for a little, 1 for much, 2 again and 0 for a little."""
    player = TrunkPlayer(TrunkArbiter(3, policy, MBPS), 0.5)
    player.transfer(0, 1.0)
    for moment, region, seconds in ((0.6, 2, 1.0), (0.7, 1, 3.0), (0.8, 2, 1.0), (0.9, 0, 0.5)):
        player.at(moment, partial(player.transfer, region, seconds))
    player.play(lambda: len([1 for _, what, _ in player.log if what == "end"]) == 5)
    return player


def test_demand_takes_the_longest_queue_and_phase_the_oldest_request() -> None:
    assert order_of(asked_together("demand")) == [0, 1, 2, 2, 0]
    assert order_of(asked_together("phase")) == [0, 2, 2, 1, 0]


def test_a_circuit_that_is_up_is_used_again_without_a_reconfiguration() -> None:
    player = TrunkPlayer(TrunkArbiter(2, "phase", MBPS), 0.5)
    player.transfer(1, 1.0, lambda: player.at(9.0, lambda: player.transfer(1, 1.0)))
    player.play(lambda: player.log[-1][0] == 10.0)
    assert player.log == [
        (0.0, "rewire", 1), (0.5, "up", 1), (0.5, "begin", 1), (1.5, "end", 1), (9.0, "begin", 1), (10.0, "end", 1)
    ]  # fmt: skip
    assert player.arbiter.stop() == [CircuitEnded(1, 0.5, 2, 2 * MB)]


def test_rotor_goes_round_without_looking_and_grants_what_fits_into_its_slot() -> None:
    player = TrunkPlayer(TrunkArbiter(3, "rotor", MBPS, slot_s=2.0), 0.5)
    player.at(1.0, lambda: player.transfer(0, 1.5))  # 1.5 s of the slot are left: it fits
    player.at(1.1, lambda: player.transfer(0, 1.0))  # not behind the other
    player.play(lambda: len(order_of(player)) == 2)
    assert [(t, region) for t, what, region in player.log if what == "up"] == [(0.5, 0), (3.0, 1), (5.5, 2), (8.0, 0)]
    assert [t for t, what, _ in player.log if what == "begin"] == [1.0, 8.0]
    assert player.ended == [CircuitEnded(0, 0.5, 1, 1_500_000), CircuitEnded(1, 3.0, 0, 0), CircuitEnded(2, 5.5, 0, 0)]


def test_a_transfer_that_overruns_its_slot_is_not_cut_off() -> None:
    arbiter = TrunkArbiter(2, "rotor", MBPS, slot_s=1.0)
    assert arbiter.start(0.0) == [TurnTo(0)] and arbiter.tuned(0.5) == []
    token, actions = arbiter.ask(0, MB, 0.5)
    assert actions == [Granted(token)]
    assert arbiter.tick(1.7) == [] and arbiter.done(token, 1.8) == [CircuitEnded(0, 0.5, 1, MB), TurnTo(1)]


def test_a_leaf_that_never_ends_loses_its_grant() -> None:
    arbiter = TrunkArbiter(2, "phase", MBPS)
    dead, actions = arbiter.ask(0, MB, 0.0)
    assert actions == [TurnTo(0)] and arbiter.due() is None
    assert arbiter.tuned(1.0) == [Granted(dead)]
    alive, actions = arbiter.ask(1, MB, 2.0)
    ends = 1.0 + LEASE_FACTOR * 1.0 + LEASE_S
    assert actions == [] and arbiter.due() == ends
    assert arbiter.tick(ends) == [CircuitEnded(0, 1.0, 1, MB), TurnTo(1)]
    assert arbiter.done(dead, ends + 1) == [] and arbiter.tuned(ends + 2) == [Granted(alive)]


def test_a_request_that_is_taken_back_is_not_granted() -> None:
    arbiter = TrunkArbiter(2, "demand", MBPS)
    first, _ = arbiter.ask(0, MB, 0.0)
    second, _ = arbiter.ask(1, MB, 0.0)
    assert arbiter.tuned(0.1) == [Granted(first)]
    assert arbiter.done(second, 0.2) == [] == arbiter.done(first, 1.1)


@given(
    policy=st.sampled_from(["rotor", "demand", "phase"]),
    regions=st.integers(1, 5),
    delay_s=st.sampled_from([0.0, 0.25, 1.0]),
    asks=st.lists(st.tuples(st.floats(0, 20), st.integers(0, 4), st.sampled_from([0.25, 0.5, 1.0])), min_size=1),
)
def test_every_request_is_granted_once_over_its_own_circuit(
    policy: str, regions: int, delay_s: float, asks: list[tuple[float, int, float]]
) -> None:
    """That it is its own circuit, and that none is cut off, the player checks."""
    player = TrunkPlayer(TrunkArbiter(regions, policy, MBPS, slot_s=1.0), delay_s)
    over = []
    for moment, region, seconds in asks:

        def ask(region: int = region % regions, seconds: float = seconds) -> None:
            player.transfer(region, seconds, lambda: over.append(region))

        player.at(moment, ask)
    player.play(lambda: len(over) == len(asks))
    assert sorted(over) == sorted(region % regions for _, region, _ in asks)
    last = [action for action in player.arbiter.stop() if isinstance(action, CircuitEnded)]
    carried = sum(circuit.bytes for circuit in [*player.ended, *last])
    assert carried == sum(round(seconds * BYTES_PER_S) for _, _, seconds in asks)


def test_bad_input_is_refused_in_one_sentence() -> None:
    arbiter = TrunkArbiter(2, "rotor", MBPS, slot_s=1.0)
    arbiter.start(0.0)
    with pytest.raises(ControlError, match="regions 0 to 1"):
        arbiter.ask(2, MB, 0.0)
    with pytest.raises(ControlError, match="make the slots longer"):
        arbiter.ask(1, 2 * MB, 0.0)
