"""Processes whose monotonic clock is that of another machine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from checkout import ROOT

from topos.kernel.run_watcher import Process

pytestmark = [pytest.mark.root, pytest.mark.beside]

IN_NAMESPACE = ["unshare", "--time", "--monotonic", "1000", "--fork"]
WAITS = """
import ctypes, os, select, socket, struct, sys, threading, time

began = time.monotonic()
print(began, flush=True)
sys.stdin.readline()

def lasted(wait):
    start = time.monotonic()
    wait()
    return time.monotonic() - start

def timer_at(when):
    # of timerfd(2): an absolute time of CLOCK_MONOTONIC
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.timerfd_create(1, 0)
    whole, rest = divmod(round(when * 1e9), 10**9)
    assert libc.timerfd_settime(fd, 1, struct.pack("4q", 0, 0, whole, rest), None) == 0
    assert select.select([fd], [], [], 5.0)[0]
    os.read(fd, 8)

def by_thread():
    done = threading.Event()
    threading.Timer(0.1, done.set).start()
    assert done.wait(5.0)

def over_tcp():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname(), 5.0)
    server = listener.accept()[0]
    server.settimeout(0.1)
    try:
        server.recv(1)
        raise AssertionError("nothing was sent")
    except TimeoutError:
        pass
    client.sendall(b"x" * 100000)
    taken = 0
    while taken < 100000:
        taken += len(server.recv(100000))

print([
    lasted(lambda: time.sleep(0.1)),
    lasted(lambda: select.epoll().poll(0.1)),
    lasted(lambda: select.select([], [], [], 0.1)),
    lasted(lambda: threading.Event().wait(0.1)),
    lasted(by_thread),
    lasted(lambda: timer_at(time.monotonic() + 0.1)),
    lasted(over_tcp),
], flush=True)
"""
MOVER = """
import json, subprocess, sys, time
from railyard.remote.time_namespace import enter_time_offset

offset, waits = json.loads(sys.stdin.readline())
before = time.monotonic()
enter_time_offset(offset)
child = subprocess.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
sooner = time.monotonic()
print(json.dumps([child.pid, sooner - before]), flush=True)
sys.stdin.readline()
clock = float(child.stdout.readline())
print(json.dumps(clock - sooner), flush=True)
child.stdin.close()
print(child.stdout.read(), flush=True)
again = subprocess.Popen([sys.executable, "-c", "import time; print(time.monotonic())"], stdout=subprocess.PIPE)
print(json.dumps([time.monotonic(), float(again.communicate()[0]), time.monotonic()]))
"""


@pytest.mark.parametrize(("within", "offset"), [([], 2500.25), (IN_NAMESPACE, -3.5)], ids=["first", "nested"])
def test_processes_started_later_have_the_other_clock(within: list[str], offset: float) -> None:
    process = subprocess.Popen(
        [*within, sys.executable, "-c", MOVER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    with process:
        print(json.dumps([offset, WAITS]), file=process.stdin, flush=True)
        pid, moved = json.loads(process.stdout.readline())
        seen = Process.of(pid)
        print(file=process.stdin, flush=True)
        apart = json.loads(process.stdout.readline())
        waits = json.loads(process.stdout.readline())
        process.stdout.readline()
        sooner, child, later = json.loads(process.stdout.readline())
    assert 0.0 <= moved < 1.0
    assert 0.0 <= apart - offset < 5.0
    assert sooner <= child - offset <= later, "the child's clock is between two readings of its parent's"
    assert all(0.1 <= each < 3.0 for each in waits), waits
    assert seen is not None and not seen.alive


def test_start_times_of_processes_are_those_of_the_machine() -> None:
    """They identify a process together with its id, for processes in every time namespace."""
    code = (
        "import subprocess, sys\n"
        "from railyard.remote.time_namespace import enter_time_offset\n"
        "from topos.kernel.run_watcher import Process\n"
        "enter_time_offset(5000.0)\n"
        "inner = 'import os; from topos.kernel.run_watcher import Process; print(Process.of(os.getpid()).started)'\n"
        "child = subprocess.Popen([sys.executable, '-c', inner], stdout=subprocess.PIPE)\n"
        "outer = Process.of(child.pid).started\n"
        "print(outer, int(child.communicate()[0]))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    outer, inner = ran.stdout.split()
    assert outer == inner


def test_a_clock_before_zero_is_refused() -> None:
    code = (
        "from railyard.errors import MachineError\n"
        "from railyard.remote.time_namespace import enter_time_offset\n"
        "try:\n    enter_time_offset(-1e9)\nexcept MachineError as error:\n    print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("the kernel refuses a time namespace with a clock -1000000000.000 s ahead (")
