from __future__ import annotations

import os
import subprocess
import sys

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
