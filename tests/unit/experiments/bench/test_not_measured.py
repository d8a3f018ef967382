"""A bench that cannot measure says so: never 0, and no number that is none."""

from __future__ import annotations

import importlib.util
import math
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from checkout import SCRIPTS

from experiments.bench import Measurement, NotMeasured, bringup, collectives, control, finite, links, rings, slopes
from experiments.bench import ring_all_reduce as collective
from experiments.bench.goodput import receive
from railyard.errors import MachineError
from railyard.timeline import Event, write_events


class Host:
    """A host whose measuring process is any shell command."""

    def __init__(self, name: str, command: str) -> None:
        self.name, self.command = name, command

    def IP(self) -> str:
        return "127.0.0.1"

    def popen(self, command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", "-c", self.command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Net:
    """A net that does nothing."""

    hosts = (Host("g0", "echo 94.5"), Host("g1", "echo 95.5"))
    links = ()

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Net:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    start = stop = lambda self: None


def no_stock(*_: object) -> dict[str, Any]:
    raise MachineError("stock Mininet ended with status 1: no mnexec")


# ---- links and bring-up ----------------------------------------------------------------------------------------------


def test_goodput_of_every_host() -> None:
    assert rings.ring_goodput([Host("g0", "echo 94.5"), Host("g1", "echo 95.5")], 0.1) == [94.5, 95.5]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo '/proj: No such file or directory' >&2; exit 1", "host g1: /proj: No such file or directory"),
        ("exit 4", "host g1: its process ended with status 4 without output"),
        ("exec sleep 60", "host g1: its process did not end in time"),
    ],
)
def test_a_host_without_goodput_is_named(monkeypatch: pytest.MonkeyPatch, command: str, why: str) -> None:
    monkeypatch.setattr(rings, "_PATIENCE_S", 0.4)
    with pytest.raises(NotMeasured, match=f"the goodput of {why}"):
        rings.ring_goodput([Host("g0", "echo 1.0"), Host("g1", command), Host("g2", "exec sleep 60")], 0.1)


def test_a_sender_that_hangs_up_is_no_goodput_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.bench.goodput._WARM_UP_S", 0.0)
    program = "import socket, time\n" + "\n".join([
        "for _ in range(100):",
        "    try: socket.create_connection(('127.0.0.1', 7300)).close(); break",
        "    except OSError: time.sleep(0.05)",
    ])  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", program]), pytest.raises(ConnectionError, match="hung up"):
        receive("127.0.0.1", 1.0)


def test_no_spread_where_half_of_the_hosts_received_nothing() -> None:
    with pytest.raises(NotMeasured, match="received nothing"):
        links.spread([0.0, 0.0, 5.0])


def test_without_the_stock_tool_ours_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "Emulation", Net)
    monkeypatch.setattr(links, "stock", no_stock)
    slowest, apart, stock = links.links(2, 100.0, 0.1)
    assert slowest.value == pytest.approx(0.945 * 9014 / 8948, rel=0.01) and slowest.baseline is slowest.ratio is None
    assert apart.value == pytest.approx(1 / 95)
    assert (stock.value, stock.ok) == (None, False) and "no mnexec" in stock.why_not
    monkeypatch.setattr(bringup, "Emulation", Net)
    monkeypatch.setattr(bringup, "stock", no_stock)
    assert [row.value is None for row in bringup.bring_up()] == [False, False, True]


# ---- collectives and slopes ------------------------------------------------------------------------------------------


def test_a_step_whose_end_nobody_noted() -> None:
    events = [Event(1.0, "agent", "communicate", 2.0, {"step": 0})]
    assert collective._last_end(events, 0) == 2.0
    with pytest.raises(NotMeasured, match="the end of step 1"):
        collective._last_end(events, 1)


def test_no_aggregate_where_no_rate_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [Measurement("all-reduce", 2.0, "ratio", limit=1.05, ok=False)]
    monkeypatch.setattr(collective, "ring_all_reduce", lambda *_, **__: late)
    monkeypatch.setattr(collective, "AgentLauncher", type("Nobody", (), {"start": Net}))
    with pytest.raises(NotMeasured, match=r"8 hosts were not within 1\.05"):
        collective.highest_aggregate(8)


class Cases:
    """A run of cases that measures nothing."""

    class record:
        rows: tuple[dict[str, Any], ...] = ()

    def __enter__(self) -> Cases:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def measure(self, _trial: object) -> Any:
        return type("Measured", (), {"row": {"after_arrival_s": 0.0}})


def test_collectives_that_were_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "_run", lambda _: Cases())
    for bench in (collectives.against_bounds, collectives.stragglar):
        rows = bench()
        assert rows and all((row.value, row.ok) == (None, False) and row.why_not for row in rows)


def row(mode: str, delay_ms: float, step_s: float | None, **more: float) -> dict[str, Any]:
    return {"mode": mode, "reconfiguration_delay_ms": delay_ms, "step_time_s": step_s, **more}


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda: slopes._fit([row("on-demand", 50, 1.0)], "on-demand"), "fewer than two delays"),
        (
            lambda: slopes._fit([row("on-demand", 50, 1.0), row("on-demand", 99, None)], "on-demand"),
            "at 99 ms: no step",
        ),
        (lambda: slopes._provisioned([row("on-demand", 50, 1.0)]), "a point of one of them is missing"),
        (lambda: slopes._provisioned([row("provisioned", 50, 1.0, stall_law_step_time_s=1.0)]), "is missing"),
    ],
)
def test_no_slope_without_points(act: Callable[[], object], why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        act()


# ---- the control plane -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"id":0,"ok":false,"error":"no such job"}\n', "checkin of a member was refused: no such job"),
        (b"", "2 of 2 members got no answer to checkin within 0.2 s"),
    ],
)
def test_a_barrier_without_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes, why: str) -> None:
    monkeypatch.setattr(control, "MEMBERS", 2)
    monkeypatch.setattr(control, "_PATIENCE_S", 10.0 if answer else 0.2)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor() as pool:
        listener.bind(str(tmp_path / "channel"))
        listener.listen()
        barriers = pool.submit(control._barriers, tmp_path / "channel", "ring")
        calls = [listener.accept()[0] for _ in range(2)]
        calls[0].sendall(answer)
        with pytest.raises(NotMeasured, match=why):
            barriers.result(10)
        for call in calls:
            call.close()


def test_barrier_replies_are_read_off_the_events_of_the_controller(tmp_path: Path) -> None:
    changes = [Event(1.0, "controller", "reconfigure", 1.5), Event(2.0, "controller", "reconfigure", 2.25)]
    write_events(tmp_path / "events", [*changes, Event(1.2, "controller", "ack", None, {"group": "ring"})])
    assert control._barrier_replies(tmp_path / "events") == [1.5, 2.25]


# ---- the script ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_a_number_that_is_none_is_not_shown(number: float) -> None:
    good = Measurement("good", 1.0, "s")
    found = finite([good, Measurement("value", number, "s"), Measurement("ratio", 1.0, "s", 2.0, number, 3.0, True)])
    assert found[0] is good
    assert [(one.value, one.ok, one.why_not.split(",")[0]) for one in found[1:]] == [
        (None, False, f"the measurement gave {number:g}")
    ] * 2


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "_venv", ModuleType("_venv"))
    spec = importlib.util.spec_from_file_location("bench_script", SCRIPTS / "bench.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    return module


def test_what_cannot_be_measured_is_a_row_and_a_status_and_the_next_bench_runs(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse() -> list[Measurement]:
        raise NotMeasured("the goodput of host g0: /proj: No such file or directory")

    benches = {
        "links": script.BENCHES["links"].__class__("says", refuse),
        "rewire": script.BENCHES["links"].__class__("says", lambda: [Measurement("rewire", 0.002, "s", ok=True)]),
    }
    monkeypatch.setattr(script, "BENCHES", benches)
    monkeypatch.setattr(sys, "argv", ["bench.py", "--json", str(tmp_path / "found.json")])
    assert script.main() == 1
    said = capsys.readouterr().out
    assert "0.002" in said
    assert "links: not measured: the goodput of host g0: /proj: No such file or directory\n" in said
    assert '"value": null' in (tmp_path / "found.json").read_text()
