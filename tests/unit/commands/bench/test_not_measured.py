"""A bench that cannot measure says so: never 0, and no number that is none."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commands.bench import (
    Measurement,
    NotMeasured,
    bed,
    circuits,
    collectives,
    command,
    fabric,
    finite,
    runs,
)
from commands.main import main
from measure.live.goodput_host import count
from railyard.errors import MachineError
from railyard.timeline import Event, write_events
from workloads.program import Group


class Net:
    """A net that does nothing."""

    hosts = ("g0", "g1")
    links = ()

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Net:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    start = stop = lambda self: None


def no_stock(*_: object, **__: object) -> dict[str, Any]:
    raise MachineError("stock Mininet ended with status 1: no mnexec")


# ---- links and bring-up ----------------------------------------------------------------------------------------------


def goodputs(monkeypatch: pytest.MonkeyPatch, *found: float) -> None:
    """Let the ring of hosts have these goodputs."""
    monkeypatch.setattr(fabric, "ring_goodputs", lambda *_: list(found))
    monkeypatch.setattr(fabric, "ring", lambda *_: nullcontext([]))


def test_a_host_without_goodput_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    goodputs(monkeypatch, 1.0, 0.0)
    with pytest.raises(NotMeasured, match="the goodput of host 1 of a ring: nothing that it sent was received"):
        fabric.ring_goodput([], 100.0, 0.1)


def test_a_sender_that_hangs_up_is_no_goodput_of_0() -> None:
    sender, receiver = socket.socketpair()
    with receiver, pytest.raises(SystemExit, match="hung up"):
        sender.close()
        count(receiver, time.monotonic(), time.monotonic() + 5)


def test_no_spread_where_half_of_the_hosts_received_nothing() -> None:
    with pytest.raises(NotMeasured, match="received nothing"):
        fabric.spread([0.0, 0.0, 5.0])


def test_without_the_stock_tool_ours_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    goodputs(monkeypatch, 94.5, 95.5)
    monkeypatch.setattr(bed, "Emulation", Net)
    monkeypatch.setattr(fabric, "stock", no_stock)
    slowest, apart, missing = fabric.links(bed.Bed("ovs"), 2, 100.0, 0.1)
    assert slowest.value == pytest.approx(0.945 * 9014 / 8948, rel=0.01) and slowest.baseline is slowest.ratio is None
    assert apart.value == pytest.approx(1 / 95)
    assert (missing.value, missing.ok) == (None, False) and "no mnexec" in missing.why_not
    assert [row.value is None for row in fabric.bring_up(bed.Bed("ovs"))] == [False, False, False, True]


# ---- collectives and slopes ------------------------------------------------------------------------------------------


def test_collectives_that_were_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def unseen(experiment: Any) -> list[dict[str, Any]]:
        of_n = {"n": 8, "algorithm": "ring", "straggler_delay_s": 0.0, "time_s": 1.0}
        return [{**of_n, "after_arrival_s": 0.0} for _ in experiment.trials]

    monkeypatch.setattr(collectives, "rows_of", unseen)
    for bench in (collectives.against_bounds, collectives.stragglar):
        rows = bench(bed.Bed("ovs"))
        assert rows and all((row.value, row.ok) == (None, False) and row.why_not for row in rows)


def row(mode: str, delay_ms: float, step_s: float | None, **more: float) -> dict[str, Any]:
    return {"mode": mode, "reconfiguration_delay_ms": delay_ms, "step_time_s": step_s, **more}


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda: runs._fit([row("on-demand", 50, 1.0)], "on-demand"), "fewer than two delays"),
        (
            lambda: runs._fit([row("on-demand", 50, 1.0), row("on-demand", 99, None)], "on-demand"),
            "at 99 ms: no step",
        ),
        (lambda: runs._provisioned([row("on-demand", 50, 1.0)]), "a point of one of them is missing"),
        (lambda: runs._provisioned([row("provisioned", 50, 1.0, stall_law_step_time_s=1.0)]), "is missing"),
    ],
)
def test_no_slope_without_points(act: Callable[[], object], why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        act()


# ---- the control plane -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"id":0,"ok":false,"error":"no such job"}\n', "the controller refused checkin of group ring: no such job"),
        (b"", "2 of 2 members got no answer to checkin within 0.2 s"),
    ],
)
def test_a_barrier_without_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes, why: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor() as pool:
        listener.bind(str(tmp_path / "channel"))
        listener.listen()
        group = Group("ring", "dp", (0, 1))
        barriers = pool.submit(circuits.barriers, tmp_path / "channel", group, 10.0 if answer else 0.2)
        calls = [listener.accept()[0] for _ in range(2)]
        calls[0].sendall(answer)
        with pytest.raises(NotMeasured, match=why):
            barriers.result(10)
        for call in calls:
            call.close()


def test_changes_are_read_off_the_events_of_the_controller(tmp_path: Path) -> None:
    changes = [Event(1.0, "controller", "reconfigure", 1.5), Event(2.0, "controller", "reconfigure", 2.25)]
    write_events(tmp_path / "events", [*changes, Event(1.2, "controller", "ack", None, {"group": "ring"})])
    controller: Any = SimpleNamespace(files=SimpleNamespace(events=tmp_path / "events"))
    rail = bed.Rail(None, controller, None)  # type: ignore[arg-type]
    assert [event.end for event in rail.changes()] == [1.5, 2.25]
    assert [event.end for event in rail.changes(since=1.5)] == [2.25]


# ---- the script ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_a_number_that_is_none_is_not_shown(number: float) -> None:
    good = Measurement("good", 1.0, "s")
    found = finite([good, Measurement("value", number, "s"), Measurement("ratio", 1.0, "s", 2.0, number, 3.0, True)])
    assert found[0] is good
    assert [(one.value, one.ok, one.why_not.split(",")[0]) for one in found[1:]] == [
        (None, False, f"the measurement gave {number:g}")
    ] * 2


def test_what_cannot_be_measured_is_a_row_and_a_status_and_the_next_bench_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse(_: bed.Bed) -> list[Measurement]:
        raise NotMeasured("the goodput of host g0: /proj: No such file or directory")

    monkeypatch.setattr(fabric, "links", refuse)
    monkeypatch.setattr(circuits, "rewire_64", lambda _: [Measurement("rewire", 0.002, "s", ok=True)])
    monkeypatch.setattr(runs, "slopes", refuse)
    benches = {
        "links": command.Benchmark("says", ("fabric:links",)),
        "rewire": command.Benchmark("says", ("circuits:rewire_64",)),
        "slopes": command.Benchmark("says", ("runs:slopes",), large=True),
    }
    monkeypatch.setattr(command, "BENCHES", benches)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["bench", "--datapath", "ovs", "--json", str(tmp_path / "found.json")]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "0.002" in said
    assert "links (ovs): not measured: the goodput of host g0: /proj: No such file or" in said
    assert "slopes" not in said
    assert '"value": null' in (tmp_path / "found.json").read_text()
