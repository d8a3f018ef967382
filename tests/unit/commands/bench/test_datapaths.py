"""One run measures several datapaths side by side, each row names its own, and limits depend on it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, get_args

import pytest

from commands.bench import Measurement, NotMeasured, bed, experiment
from commands.bench.bed import Baseline, Bed
from commands.bench.catalog import BENCHES, Benchmark
from commands.bench.ceiling import WITHIN, size_of
from commands.bench.experiment import Bench, BenchSettings, Name
from commands.bench.ring_all_reduce import LARGE, SCALING, ideal_s
from experiments.settings import validated
from railyard.errors import ConfigError, MachineError


def test_parts_take_turns_between_the_datapaths(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, str]] = []

    def part(name: str) -> Any:
        def measure(on: Bed) -> list[Measurement]:
            order.append((name, on.wanted))
            return [Measurement(name, 1.0, "s")]

        return measure

    class Runner:
        progress = type("Progress", (), {"begin": lambda *_: None})()
        rows: ClassVar[list[Measurement]] = []

        def add(self, *rows: Measurement) -> None:
            self.rows.extend(rows)

    monkeypatch.setattr("commands.bench.catalog.BENCHES", {"rtt": Benchmark("says", (part("a"), part("b")))})
    settings = validated(BenchSettings, {"datapath": ["bpf", "ovs"], "only": ["rtt"]})
    Bench(settings).run(Runner())  # type: ignore[arg-type]
    assert order == [("a", "bpf"), ("a", "ovs"), ("b", "bpf"), ("b", "ovs")]
    assert [(row.name, row.datapath) for row in Runner.rows] == order


def test_limits_are_those_of_the_datapath() -> None:
    assert Bed("bpf").at_most("x", 1.03, "ratio", 1.02, 1.05).ok is False
    assert Bed("ovs").at_most("x", 1.03, "ratio", 1.02, 1.05).ok is True
    assert Bed("ovs").at_least("x", 0.985, "share", 0.99, 0.98).ok is True
    assert Bed("bpf").at_least("x", 0.985, "share", 0.99, 0.98).ok is False
    free = Bed("ovs").at_most("x", 99.0, "us", 60.0)
    assert (free.limit, free.ok) == (None, None)


def test_a_datapath_that_the_machine_refuses_is_a_row() -> None:
    def refuse(_: Bed) -> list[Measurement]:
        raise ConfigError("the kernel refuses bpf(2)", key="datapath")

    (row,) = experiment.rows("rtt", refuse, Bed("bpf"))
    assert (row.value, row.ok, row.datapath) == (None, False, "bpf") and "bpf(2)" in row.why_not


def test_stock_mininet_is_measured_once_for_all_datapaths(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def stock(shape: dict[str, Any], **work: Any) -> dict[str, Any]:
        calls.append(shape)
        if shape["servers"] == 3:
            raise MachineError("no mnexec")
        return {"up_s": 1.0}

    monkeypatch.setattr(bed, "stock", stock)
    baseline = Baseline()
    for _ in range(2):
        assert Bed("bpf", baseline).stock({"servers": 2}) == {"up_s": 1.0}
        with pytest.raises(MachineError, match="no mnexec"):
            Bed("ovs", baseline).stock({"servers": 3})
    assert len(calls) == 2


def test_every_benchmark_can_be_named() -> None:
    assert set(get_args(Name)) == set(BENCHES)


def test_a_row_says_its_datapath() -> None:
    assert "datapath" in {each.name for each in fields(Measurement)}


@pytest.mark.parametrize("size", [*SCALING, *LARGE, size_of(64, 100.0), size_of(512, 10.0)])
def test_chunks_of_all_reduces_take_long_beside_the_latency_of_a_round(size: Any) -> None:
    rounds = 2 * (size.hosts - 1)
    assert ideal_s(size.hosts, size.rate_mbps, size.bytes) / rounds > 0.03
    assert size.bytes % 4 == 0 and size.steps > 1


def test_the_all_reduce_of_the_ceiling_is_judged_by_its_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    from commands.bench import ceiling

    def run(_: Bed, size: Any) -> tuple[list[float], float]:
        slow = 1.0 if size.hosts * size.rate_mbps <= 5000 else WITHIN + 0.01
        return [slow * ideal_s(size.hosts, size.rate_mbps, size.bytes)], 0.1

    monkeypatch.setattr(ceiling, "run", run)
    (row,) = ceiling.highest_aggregate(Bed("bpf"), 64)
    assert row.value is not None and 4500 <= row.value <= 5000 and row.ok is False
    monkeypatch.setattr(ceiling, "run", lambda *_: ([1e9], 0.1))
    with pytest.raises(NotMeasured):
        ceiling.highest_aggregate(Bed("bpf"), 64)
