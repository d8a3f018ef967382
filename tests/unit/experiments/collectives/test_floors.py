"""Trials below the floors of this machine are refused before anything is brought up."""

from __future__ import annotations

from typing import Any

import pytest

from commands.bench.collectives import AnySlots
from experiments.collectives import experiment as trials
from experiments.collectives.all_to_all.experiment import AllToAll, AllToAllSettings
from experiments.progress import RunProgress
from experiments.settings import validated
from railyard.errors import ConfigError
from railyard.scale import Floors


class Measured(Exception):
    """A trial was about to be measured."""


class NoRunner:
    number = 0
    progress = RunProgress()

    def measure(self, *_: Any) -> None:
        raise Measured


def run(kind: type[AllToAll], slot_ms: float, delay_ms: float) -> None:
    values = {"studies": ["slot"], "slots_ms": [slot_ms], "delays_ms": [delay_ms], "guard_ms": 0.3, "ranks": [4]}
    kind(validated(AllToAllSettings, {**values, "port_gbps": 0.4})).run(NoRunner())  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _floors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "machine_floors", lambda datapath: Floors(delay_s=0.0005, slot_s=0.002))


@pytest.mark.parametrize(
    ("slot_ms", "delay_ms", "what"),
    [(1.9, 1.0, "the slot of .* is 1.9 ms"), (10.0, 0.4, "the reconfiguration delay of .* is 0.4 ms")],
)
def test_below_a_floor_a_trial_is_refused(slot_ms: float, delay_ms: float, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        run(AllToAll, slot_ms, delay_ms)
    with pytest.raises(Measured):
        run(AnySlots, slot_ms, delay_ms)


def test_at_the_floors_a_trial_is_measured() -> None:
    with pytest.raises(Measured):
        run(AllToAll, 2.0, 0.5)
