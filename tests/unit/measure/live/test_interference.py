"""Processor time of processes that are not the run's, from a folder with the files of /proc, and the wait for quiet."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.live.interference import OtherLoad, OtherProcesses, steady_load, wait_for_quiet
from measure.live.processor import Load, Processor

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
RUN, SHELL, AGENT, SWITCH, STRANGER, CHILD, KERNEL = 100, 50, 101, 102, 200, 201, 9
MARK = "m1"


class Table:
    """A folder like /proc, whose processes begin with nothing used, and a clock."""

    def __init__(self, proc: Path) -> None:
        self.proc, self.now = proc, 10.0
        for pid, parent in ((1, 0), (SHELL, 1), (RUN, SHELL), (AGENT, RUN), (STRANGER, 1)):
            self.add(pid, parent)
        self.add(SWITCH, 1, mark=f"{MARK}.run7")
        self.add(KERNEL, 2, flags=0x00200000)
        self.others = OtherProcesses(RUN, f"RAILYARD_MARK={MARK}", proc, lambda: self.now)

    def add(
        self,
        pid: int,
        parent: int,
        ticks: int = 0,
        ended: int = 0,
        mark: str = "",
        flags: int = 0,
        name: bytes = b"a) S 1 (b",
    ) -> None:
        """Add a process, or change it; its name has what confuses a careless reader."""
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        fields = ["S", parent, 1, 1, 0, -1, flags, 0, 0, 0, 0, ticks, 0, ended, 0, 20, 0, 1, 0, 7000 + pid]
        (folder / "stat").write_bytes(b"%d (%b) %b 0 0\n" % (pid, name, " ".join(map(str, fields)).encode()))
        (folder / "environ").write_bytes(f"HOME=/\0RAILYARD_MARK={mark}\0".encode() if mark else b"HOME=/\0")

    def end(self, pid: int) -> None:
        for name in ("stat", "environ"):
            (self.proc / str(pid) / name).unlink()
        (self.proc / str(pid)).rmdir()

    def ticks(self, seconds: float = 1.0) -> float:
        """Ticks that others have used in the ``seconds`` since the last call."""
        self.now += seconds
        return self.others.read().share * seconds * CORES / TICK_S

    def names(self, seconds: float = 1.0) -> dict[str, int]:
        """Ticks of those that the last reading names; ``seconds`` passed before it."""
        return {name: round(part * seconds * CORES / TICK_S) for name, part in self.others.read().largest}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_only_what_is_not_of_the_run_and_not_of_the_kernel_counts(table: Table) -> None:
    for pid, parent in ((RUN, SHELL), (AGENT, RUN)):
        table.add(pid, parent, ticks=40)
    table.add(SWITCH, 1, ticks=40, mark=f"{MARK}.run7")
    table.add(KERNEL, 2, ticks=40, flags=0x00200000)
    assert table.ticks() == 0
    table.add(STRANGER, 1, ticks=30)
    assert table.ticks() == pytest.approx(30)
    assert table.ticks() == 0, "a reading counts from the one before"
    table.add(AGENT + 500, AGENT, ticks=20)
    table.add(STRANGER + 500, STRANGER, ticks=5)
    assert table.ticks() == pytest.approx(5), (
        "what a process of the run starts is the run's; what a stranger starts not"
    )


def test_who_took_the_time_is_named_by_the_reading_that_measures_it(table: Table) -> None:
    for pid, name, ticks in ((201, b"tar", 4), (202, b"tar", 5), (203, b"idle", 0), (204, b"sshd", 2), (205, b"sh", 1)):
        table.add(pid, 1, ticks=ticks, name=name)
    table.add(AGENT, RUN, ticks=9, name=b"agent")
    table.add(KERNEL, 2, ticks=9, flags=0x00200000, name=b"kswapd0")
    table.add(STRANGER, 1, ticks=7, name=b"qemu-system-x86")
    assert table.ticks() == pytest.approx(19)
    assert table.names() == {"tar": 9, "qemu-system-x86": 7, "sshd": 2, "sh": 1}, "none of the run, none of the kernel"
    table.add(205, 1, ticks=1, ended=6, name=b"sh")
    table.ticks()
    assert table.names() == {"sh": 6}, "children that came and went are named by their parent"
    for number in range(9):
        table.add(300 + number, 1, ticks=number, name=b"p%d" % number)
    table.ticks()
    assert table.names() == {"p8": 8, "p7": 7, "p6": 6, "p5": 5, "p4": 4}, "the largest alone"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (b"tmux: server", "tmux: server"),
        (b"\x1b[2J\x1b[31mroot", "??2J??31mroot"),
        (b"x) R 1 (y\n\t", "x? R 1 ?y??"),
        (b"$\\frac{1}{0}$", "??frac?1??0??"),
        (b"<b>&[red]", "?b???red?"),
        ("\u202etar\u00e9".encode(), "???tar??"),
        (b"\xff\xfe", "??"),
        (b"", "?"),
        (b"   ", "?"),
        (b"a" * 60, "a" * 15),
    ],
)
def test_a_name_that_a_process_gave_itself_does_no_harm(table: Table, command: bytes, shown: str) -> None:
    table.add(STRANGER, 1, ticks=7, name=command)
    assert table.ticks() == pytest.approx(7) and table.names() == {shown: 7}


@given(
    st.lists(
        st.dictionaries(
            st.integers(200, 212),
            st.tuples(st.integers(0, 90), st.integers(0, 90), st.sampled_from((1, 200, 205, SHELL, RUN)), st.binary()),
        ),
        max_size=5,
    )
)
def test_the_parts_of_those_that_are_named_never_exceed_the_whole(
    readings: list[dict[int, tuple[int, int, int, bytes]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Table(Path(folder))
        for processes in readings:
            for pid in range(200, 213):
                if pid in processes:
                    ticks, ended, parent, name = processes[pid]
                    table.add(pid, parent if parent < pid else 1, ticks=ticks, ended=ended, name=name)
                elif (table.proc / str(pid)).exists():
                    table.end(pid)
            table.now += 1.0
            load = table.others.read()
            parts = [part for _, part in load.largest]
            assert sum(parts) <= load.share * (1 + 1e-9) and load.share <= 1
            assert all(part > 0 for part in parts) and parts == sorted(parts, reverse=True)
            assert len({name for name, _ in load.largest}) == len(parts) <= 5
            assert all(re.fullmatch("[A-Za-z0-9 ._+:/@?-]{1,15}", name) for name, _ in load.largest)


def test_another_run_beside_this_one_is_another_process(table: Table) -> None:
    table.add(300, 1, ticks=8, mark="m2")
    assert table.ticks() == pytest.approx(8)


def test_time_of_processes_that_ended_is_found_with_their_parent_and_counted_once(table: Table) -> None:
    table.add(CHILD, STRANGER, ticks=10)
    assert table.ticks() == pytest.approx(10)
    table.end(CHILD)
    table.add(STRANGER, 1, ended=13)
    assert table.ticks() == pytest.approx(3), "10 of them were counted before"
    table.add(STRANGER, 1, ended=20)
    assert table.ticks() == pytest.approx(7), "a child that came and went between two readings"
    table.end(STRANGER)
    assert table.ticks() == 0
    table.add(SHELL, 1, ended=50)
    table.add(1, 0, ended=50)
    assert table.ticks() == 0, "what the run descends from inherits processes of the run"


def test_a_number_that_is_used_again_is_another_process(table: Table) -> None:
    table.add(STRANGER, 1, ticks=30)
    table.ticks()
    table.end(STRANGER)
    table.ticks()
    table.add(STRANGER, 1, ticks=4)
    assert table.ticks() == pytest.approx(4)


def test_a_reading_that_takes_long_is_not_repeated_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path)
    listed = os.listdir

    def slowly(path: Path) -> list[str]:
        table.now += 0.01
        return listed(path)

    monkeypatch.setattr("os.listdir", slowly)
    table.add(STRANGER, 1, ticks=30)
    first = table.ticks()
    table.add(STRANGER, 1, ticks=60)
    assert table.ticks() == first, "the last share, until 200 times 10 ms have passed"
    assert table.ticks() == pytest.approx(30 / 2.01), "of both seconds"


def test_a_run_waits_for_a_quiet_machine_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    now, other = [0.0], [0.5, 0.5, 0.01]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(Processor, "read", lambda self, seconds: Load(0.5, 2, 0.0, 0.0, None, None))
    monkeypatch.setattr(
        OtherProcesses, "read", lambda self: OtherLoad(share := other[min(int(now[0]) - 1, 2)], (("qemu", share / 2),))
    )
    assert wait_for_quiet(0) is None and now == [0.0], "0 waits for nothing"
    assert wait_for_quiet(60) == "waited 3 s until the machine was quiet"
    assert wait_for_quiet(60) is None, "it is quiet"
    now[0] = 0.0
    said = wait_for_quiet(2.5)
    assert said is not None and said.startswith(
        "the machine did not become quiet within 2.5 s: other processes kept 1.00 of 2 processors busy (qemu 0.50)"
    )
    monkeypatch.setattr(Processor, "read", lambda self, seconds: Load(0.5, 2, 0.0, 0.09, None, None))
    said = wait_for_quiet(1)
    assert said is not None and ": other guests of the hardware took 9.0% of the processors;" in said


def test_a_load_that_has_gone_is_seen_where_readings_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([1_000_000, 0])

    def used(self: OtherProcesses) -> Counter[str]:
        time.sleep(0.02)
        return Counter(sh=next(ticks))

    monkeypatch.setattr(OtherProcesses, "used", used)
    monkeypatch.setattr("measure.live.interference._READINGS_S", (0.01, 0.01))
    assert steady_load() == (0.0, "")


@pytest.mark.parametrize(
    ("shares", "cores", "share", "says"),
    [
        ([0.05, 0.9], 2, 0.0, ""),
        ([0.9, 0.09], 2, 0.0, ""),
        (
            [0.6, 0.5],
            2,
            0.5,
            "1.00 of 2 processors busy (sh 1.00); the scale leaves 1.00 to them. Points are NOT FAITHFUL while they "
            "take more than 1.2.",
        ),
        ([0.95, 0.98], 2, 0.5, "1.90 of 2 processors busy (sh 1.90); the scale leaves 1.00 to them"),
        ([0.95, 0.98], 4, 0.75, "3.80 of 4 processors busy (sh 3.80); the scale leaves 3.00 to them"),
    ],
)
def test_a_load_that_stays_is_left_its_processors_but_for_one(
    shares: list[float], cores: int, share: float, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter(shares)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(OtherProcesses, "read", lambda self: OtherLoad(one := next(readings), (("sh", one),)))
    found = steady_load()
    assert found[0] == share and found[1].startswith(f"other processes kept {says}" if says else "")
    assert bool(found[1]) == bool(says)
