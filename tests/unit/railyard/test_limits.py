"""The limit of open files of this process and what a large fabric needs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from railyard.errors import MachineError
from railyard.limits import allow_all_open_files, allow_open_files, files_of


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
