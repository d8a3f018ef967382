"""Open files, memory and disk that are left here, and what a large fabric needs."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from railyard import limits as here
from railyard.errors import MachineError
from railyard.limits import (
    LEAST_ROOM_BYTES,
    allow_all_open_files,
    allow_open_files,
    check_room,
    files_of,
    free_memory_bytes,
    memory_of,
    need_memory,
)


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The limits of the tests, with the soft one at 400; what they were comes back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    yield 400, hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_soft_limit_is_raised_as_far_as_it_must_be(limits: tuple[int, int]) -> None:
    _, hard = limits
    allow_open_files(300, "a fabric")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (400, hard)
    allow_open_files(500, "a fabric")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (500, hard)
    allow_all_open_files()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_what_the_hard_limit_does_not_permit_is_refused_with_the_number(limits: tuple[int, int]) -> None:
    _, hard = limits
    needs = rf"^a fabric of 9 hosts needs {hard + 1} open files in one process, and the limit is {hard};"
    with pytest.raises(MachineError, match=needs):
        allow_open_files(hard + 1, "a fabric of 9 hosts")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (400, hard)


def test_the_usual_limit_is_enough_for_two_hundred_hosts() -> None:
    assert files_of(hosts=2, ports=4) < files_of(hosts=160, ports=160) < 1024 < files_of(hosts=512, ports=1024) < 4096


# ---- memory and disk -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "files", "free"),
    [
        ("0::/a/b", {}, 2000 << 10),
        ("0::/a/b", {"a/memory.max": "max", "a/memory.current": "5"}, 2000 << 10),
        ("0::/a/b", {"a/memory.max": "900000", "a/memory.current": "500000", "a/memory.stat": ""}, 400_000),
        ("0::/a/b", {"a/b/memory.max": "900000", "a/b/memory.current": "500000",
                     "a/b/memory.stat": "anon 1\nfile 9\nshmem 4\ninactive_file 3\nactive_file 2\n"},
         400_005),
        ("0::/", {"memory.max": "1000", "memory.current": "5000", "memory.stat": ""}, 0),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "1000", "memory/a/memory.usage_in_bytes": "900",
                         "memory/a/memory.stat": "active_file 7\ntotal_cache 80\ntotal_shmem 30\n"
                                                "total_inactive_file 40\ntotal_active_file 10\n"}, 150),
        ("4:cpu:/a", {"memory/a/memory.limit_in_bytes": "1000"}, 2000 << 10),
    ],
)  # fmt: skip
def test_free_memory_is_that_of_the_machine_or_what_a_container_may_take(
    group: str, files: dict[str, str], free: int, tmp_path: Path
) -> None:
    written = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   2000 kB\n", "proc/self/cgroup": f"{group}\n"}
    for name, text in {**written, **{f"groups/{name}": text for name, text in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory_bytes(tmp_path / "proc", tmp_path / "groups") == free


def test_a_fabric_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    need_memory(memory_of(2), "a fabric")
    assert memory_of(2) < memory_of(64) < memory_of(512) < 2 << 30
    monkeypatch.setattr(here, "free_memory_bytes", lambda: 50_000_000)
    with pytest.raises(MachineError, match=r"^a fabric needs 0\.\d+ GB of memory, and 0\.05 GB are free; end other "):
        need_memory(memory_of(2), "a fabric")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"f_bfree": LEAST_ROOM_BYTES // 4096 - 1}, errno.ENOSPC),
        ({"f_bfree": 0, "f_blocks": 0}, None),  # a file system that does not say
        ({"f_flag": os.ST_RDONLY | os.ST_NOSUID}, errno.EROFS),
    ],
)
def test_a_folder_needs_room_where_its_first_parent_is(
    changes: dict[str, int], code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = {"f_flag": os.ST_NOSUID, "f_bfree": LEAST_ROOM_BYTES // 4096, "f_frsize": 4096, "f_blocks": 10**6, **changes}
    asked = []

    def statvfs(place: Path) -> SimpleNamespace:
        asked.append(place)
        return SimpleNamespace(**room)

    monkeypatch.setattr(os, "statvfs", statvfs)
    try:
        check_room(tmp_path / "a" / "b")
    except OSError as error:
        assert (error.errno, error.filename) == (code, str(tmp_path / "a" / "b"))
    else:
        assert code is None
    assert asked == [tmp_path]


# ---- priorities ----------------------------------------------------------------------------------------------------


SAYS = (
    "import os; from railyard.priority import set_priority; set_priority(5); print(os.getpriority(os.PRIO_PROCESS, 0))"
)


def autogroup() -> str:
    try:
        with open("/proc/self/autogroup", encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def test_a_process_that_leads_no_session_leaves_its_session_alone() -> None:
    before = autogroup()
    done = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 5
    assert autogroup() == before


def test_the_leader_of_a_session_takes_it_along() -> None:
    program = SAYS + "; print(open('/proc/self/autogroup').read() if os.path.exists('/proc/self/autogroup') else '')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, start_new_session=True
    )
    nice, _, group = done.stdout.partition("\n")
    assert int(nice) == 5
    assert not group.strip() or group.split()[-1] == "5"
    assert os.getpriority(os.PRIO_PROCESS, 0) != 5


def test_real_time_is_of_this_process_and_not_of_its_children_and_a_refusal_is_no_error() -> None:
    program = (
        "import os, subprocess, sys; from railyard.priority import set_real_time; set_real_time()\n"
        "print(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK, flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import os; print(os.sched_getscheduler(0))'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    own, child = map(int, done.stdout.split())
    assert own == (os.SCHED_RR if os.geteuid() == 0 else os.SCHED_OTHER)
    assert child == os.SCHED_OTHER
