from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from measure.live.counters import Counters, LinkCounters
from measure.live.processor import Processor
from measure.live.sampler import Changes, HostInterface, host_interfaces

USED_S = 0.2
"""CPU time, however long others keep the processor from this process."""
COUNTED_LATE_S = 0.02
"""The kernel counts the CPU time of a running thread in steps of up to 10 ms, at both readings."""
LABELS = {"rail0-eth1": HostInterface("g0-r0", 0, 0)}


def _sample(rx: int) -> dict[str, LinkCounters]:
    return {"rail0-eth1": LinkCounters(rx, 7, 0), "rail0": LinkCounters(1, 1, 0)}


def test_a_counter_that_stands_still_costs_no_line_and_loses_no_shape() -> None:
    changes = Changes(LABELS)
    written = [e for t, rx in enumerate([0, 0, 0, 5, 5]) for e in changes.take(float(t), _sample(rx))]
    written += changes.rest()
    assert [(e.t, e["tx_bytes"]) for e in written] == [(0.0, 0), (2.0, 0), (3.0, 5), (4.0, 5)]


def test_the_switch_receives_what_the_host_sends() -> None:
    (event,) = Changes(LABELS).take(1.0, _sample(99))
    assert (event["interface"], event["tx_bytes"], event["rx_bytes"]) == ("g0-r0", 99, 7)


def test_every_port_of_a_fabric_has_a_label(make_plan: Any) -> None:
    labels = host_interfaces(make_plan())
    assert labels["rail1-eth3"] == HostInterface("g3-r0", 3, 0)
    assert len(labels) == 16


def test_counters_are_those_that_the_kernel_shows_elsewhere() -> None:
    with Counters() as counters, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(bytes(1000), ("127.0.0.1", 9))
        before, table, after = counters.links(), Path("/proc/net/dev").read_text(), counters.links()
        assert isinstance(counters.queue_drops(), dict), "without root too"
    for line in table.splitlines()[2:]:
        name, fields = line.split(":")
        rx_bytes, rx_packets, _, rx_dropped, _, _, _, _, tx_bytes, tx_packets, _, tx_dropped, *_ = map(
            int, fields.split()
        )
        shown = LinkCounters(rx_bytes, tx_bytes, rx_dropped + tx_dropped, rx_packets, tx_packets)
        first, last = before[name.strip()], after[name.strip()]
        for field in ("rx_bytes", "tx_bytes", "dropped", "rx_packets", "tx_packets"):
            assert getattr(first, field) <= getattr(shown, field) <= getattr(last, field), (name, field)
    assert before["lo"].rx_bytes >= 1000


def test_a_busy_thread_is_seen() -> None:
    processor = Processor([os.getpid()])
    start, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < USED_S:
        pass
    passed_s = time.monotonic() - start
    load = processor.read(passed_s)
    assert load.processes is not None and load.thread is not None
    assert load.thread * passed_s > USED_S - COUNTED_LATE_S and load.thread <= 1.0
    assert load.thread <= load.processes + 0.01
    assert 0 <= load.busy <= 1 and load.cores == os.cpu_count()


def test_a_process_that_is_gone_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0 0 0\n")
    processor = Processor([12345], tmp_path)
    (tmp_path / "stat").write_text("cpu  40 0 10 150 0 0 0 0 0 0\ncpu0 40 0 10 150 0 0 0 0 0 0\n")
    load = processor.read(1.0)
    assert load.busy == pytest.approx(0.3)
    assert (load.processes, load.thread, load.cores) == (0.0, 0.0, 1)


def test_ticks_are_used_where_there_is_no_schedstat(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 0 0 1 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\n")
    task = tmp_path / "7" / "task" / "8"
    task.mkdir(parents=True)
    line = "8 (ovs (x) y) S " + "0 " * 10 + "{} {} 0 0"
    (task / "stat").write_text(line.format(0, 0))
    processor = Processor([7], tmp_path)
    tick = os.sysconf("SC_CLK_TCK")
    (task / "stat").write_text(line.format(tick // 4, tick // 4))
    load = processor.read(1.0)
    assert load.thread == pytest.approx(0.5)
