"""One run measures several datapaths side by side, each row names its own, and limits depend on it."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from commands.bench import Measurement, command, fabric
from commands.bench.bed import Bed
from commands.bench.command import BENCHES, Bench, BenchSettings
from experiments.settings import validated
from railyard.errors import ConfigError, MachineError


def test_parts_take_turns_between_the_datapaths(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, str]] = []

    def part(name: str) -> Any:
        def measure(on: Bed) -> list[Measurement]:
            order.append((name, on.datapath))
            return [Measurement(name, 1.0, "s")]

        return measure

    class Runner:
        progress = type("Progress", (), {"begin": lambda *_: None})()
        rows: ClassVar[list[Measurement]] = []

        def add(self, *rows: Measurement) -> None:
            self.rows.extend(rows)

    monkeypatch.setattr(fabric, "links", part("a"))
    monkeypatch.setattr(fabric, "links_beside_load", part("b"))
    settings = validated(BenchSettings, {"datapath": ["bpf", "ovs"], "only": ["links"]})
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

    (row,) = command.rows("rtt", refuse, Bed("bpf"))
    assert (row.value, row.ok, row.datapath) == (None, False, "bpf") and "bpf(2)" in row.why_not


def test_stock_mininet_is_measured_once_for_all_datapaths(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def stock(shape: dict[str, Any], **work: Any) -> dict[str, Any]:
        calls.append(shape)
        if shape["servers"] == 3:
            raise MachineError("no mnexec")
        return {"up_s": 1.0}

    monkeypatch.setattr(fabric, "stock", stock)
    kept: dict[str, Any] = {}
    for _ in range(2):
        assert fabric.beside(Bed("bpf", kept), "x", {"servers": 2}) == ({"up_s": 1.0}, [])
        found, (missing,) = fabric.beside(Bed("ovs", kept), "x", {"servers": 3})
        assert found == {} and (missing.name, missing.why_not) == ("x_stock", "no mnexec")
    assert len(calls) == 2


def test_every_benchmark_has_its_parts() -> None:
    parts = {name: len([*bench.parts()]) for name, bench in BENCHES.items()}
    assert all(parts.values()) and parts["allreduce"] == 5 and parts["swap"] == 2
