"""Processes on other machines: what is done on them, and that nothing is left of them anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT
from cluster.machines import CLOCKS_S, SSH_CONFIG, Machine, Machines

pytestmark = [pytest.mark.root, pytest.mark.beside]

BEGINNING = """
import json, os, socket, sys, time
from railyard.errors import RailyardError
from railyard.remote.clock import offset_of, sampled
from railyard.remote.ssh import Place, RemoteProcess

def start(machine, place=Place(root=os.environ["PYTHONPATH"])):
    return RemoteProcess(machine, "cluster.remote_service", place=place).start()

def say(value):
    print(json.dumps(value), flush=True)
"""
PATHS = f"{ROOT}:{ROOT}/tests/support"


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with Machines(2) as made:
        yield made


@pytest.fixture
def doomed() -> Iterator[Machines]:
    """Machines of one test, which cuts one off."""
    with Machines(2) as made:
        yield made


def program(code: str, **more: str) -> list[str]:
    """The command line of a program of the head; it prints lines of JSON."""
    variables = {"PYTHONPATH": PATHS, "RAILYARD_SSH_CONFIG": str(SSH_CONFIG), **more}
    return ["env", *(f"{key}={value}" for key, value in variables.items()), sys.executable, "-c", BEGINNING + code]


def lines(head: Machine, code: str, **more: str) -> list[str]:
    """What a program of the head prints, which must end without an error."""
    ran = head.run(program(code, **more))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def begun(head: Machine, code: str) -> subprocess.Popen[str]:
    """A program of the head that runs on, after it has printed 1."""
    process = head.start(program(code))
    assert process.stdout and process.stderr
    assert process.stdout.readline() == "1\n", process.stderr.read()
    return process


def left(machine: Machine) -> list[str]:
    """Folders and processes of the connections that are left on a machine."""
    folders = [entry.name for entry in (machine.root / "tmp").glob("railyard-*")]
    return [*folders, *services(machine)]


def services(machine: Machine) -> list[str]:
    namespace, found = os.readlink(f"/proc/{machine.pid}/ns/pid"), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"cluster.remote_service" in words and os.readlink(entry / "ns/pid") == namespace:
                found.append(entry.name)
        except OSError:
            continue
    return found


def nothing_left(*machines: Machine, longest_s: float) -> float:
    """Seconds until nothing is left on any machine; fails if that takes longer than ``longest_s``."""
    began = time.monotonic()
    while rest := [each for machine in machines for each in left(machine)]:
        assert time.monotonic() - began < longest_s, rest
        time.sleep(0.05)
    return time.monotonic() - began


def test_processes_on_two_machines_do_what_they_are_asked_and_leave_nothing(machines: Machines) -> None:
    code = """
long = "x" * (3 << 20)
with start("a") as a, start("b") as b:
    for process in (a, b):
        say(process.connection.call("user"))
        say(process.connection.call("echo", value=long) == long)
        say(os.path.exists(process.remote_folder))
        try:
            process.connection.call("refuse", key="fabric.rails")
        except RailyardError as error:
            say([type(error).__name__, str(error), error.key])
"""
    said = lines(machines.head, code)
    for name, part in (("a", said[:4]), ("b", said[4:])):
        sentence = f"on machine {name}: fabric.rails: is wrong; leave it out"
        assert part == ["0", "true", "false", f'["ConfigError", "{sentence}", "fabric.rails"]']
    nothing_left(*machines, machines.head, longest_s=0.5)


def test_the_clock_of_a_machine_is_known_and_its_processes_can_have_that_of_the_head(machines: Machines) -> None:
    code = """
for name in "ab":
    with start(name) as process:
        def ask(op):
            return offset_of(sampled(lambda: process.connection.call(op), time.monotonic))
        before = ask("clock")
        process.connection.call("move_clock", offset_s=-before.offset_s)
        after, child = ask("clock"), ask("child_clock")
        say([before.offset_s, before.uncertainty_s, after.offset_s, child.offset_s, child.uncertainty_s])
"""
    for line, true_s in zip(lines(machines.head, code), CLOCKS_S, strict=False):
        before, uncertainty, after, child, child_uncertainty = map(float, line.strip("[]").split(","))
        assert abs(before - true_s) <= uncertainty + 1e-6
        assert abs(after - true_s) <= 0.01
        assert abs(child) <= child_uncertainty + uncertainty


def test_sockets_of_the_head_are_reached_on_a_machine(machines: Machines) -> None:
    code = """
with start("b") as b, socket.socket(socket.AF_UNIX) as listener:
    listener.bind(str(b.folder / "here"))
    listener.listen()
    b.forward(b.remote_folder / "there", b.folder / "here")
    number = b.connection.begin("through", path=str(b.remote_folder / "there"), text="hello")
    accepted = listener.accept()[0]
    accepted.sendall(accepted.recv(100).upper())
    say(b.connection.answer(number))
    for remote in ("/nonexistent/there", "relative", "/a:b"):
        try:
            b.forward(remote, b.folder / "here")
        except RailyardError as error:
            say(str(error))
"""
    mode_and_text, *refused = lines(machines.head, code)
    assert mode_and_text == '["0o600", "HELLO"]'
    assert refused[0].startswith('"machine b refuses to forward the socket /nonexistent/there (')
    assert all("cannot be forwarded; a socket has a short absolute path" in each for each in refused[1:])
    assert len(refused) == 3
    nothing_left(*machines, machines.head, longest_s=0.5)


@pytest.mark.thorough
def test_nothing_is_left_when_the_head_is_killed(machines: Machines) -> None:
    process = begun(machines.head, "kept = start('a'), start('b'), start('local')\nsay(1)\ntime.sleep(60)\n")
    assert all(services(machine) for machine in (machines["a"], machines["b"], machines.head))
    machines.head.kill(process)
    nothing_left(*machines, machines.head, longest_s=2.0)


@pytest.mark.thorough
def test_a_process_that_is_killed_is_reported_and_leaves_nothing(machines: Machines) -> None:
    code = """
with start("b") as b:
    try:
        b.connection.call("fail")
    except RailyardError as error:
        say(str(error))
"""
    said = lines(machines.head, code)
    assert said == ['"the connection to machine b has ended; the last that it said: about to fail"']
    nothing_left(*machines, machines.head, longest_s=0.5)


@pytest.mark.thorough
def test_both_sides_notice_when_the_other_is_gone_without_a_word(doomed: Machines) -> None:
    code = """
with start("b") as b:
    say(1)
    try:
        b.connection.next_message(30.0)
    except RailyardError as error:
        say(str(error))
"""
    process = begun(doomed.head, code)
    doomed["b"].unplug()
    nothing_left(doomed["b"], longest_s=12.0)
    said, _ = process.communicate(timeout=20.0)
    assert said.startswith('"the connection to machine b has ended; the last that it said: Timeout, server')
    nothing_left(doomed.head, longest_s=0.5)


@pytest.mark.parametrize(
    ("machine", "place", "expected"),
    [
        ("nowhere", "Place()", "the name of machine nowhere is not known"),
        ("b:9", "Place()", "machine b:9 cannot be reached (ssh: connect to host 10.77.0.3 port 9: Connection refused)"),
        ("nobody@b", "Place()", "machine nobody@b accepts no key of this user"),
        ("b", "Place(python='/x/python')", "the Python of Railyard is not on machine b (env: "),
        ("b", "Place(root='/x')", "Railyard is not complete on machine b ("),
        (
            "b",
            "Place(python='/bin/echo')",
            "machine b has sent a line that Railyard does not know: '-m railyard.process cluster.",
        ),
    ],
)
def test_a_machine_that_cannot_be_used_is_named_with_the_cause(
    machines: Machines, machine: str, place: str, expected: str
) -> None:
    code = f"""
try:
    start({machine!r}, {place})
except RailyardError as error:
    say([type(error).__name__, str(error)])
"""
    (said,) = lines(machines.head, code)
    assert said.startswith(f'["MachineError", "{expected}')
    nothing_left(*machines, machines.head, longest_s=0.5)


@pytest.mark.thorough
def test_under_sudo_ssh_runs_as_the_caller(machines: Machines) -> None:
    """The caller is an account of every Debian; he has a copy of the key."""
    code = """
import pwd, shutil, pathlib
user = pwd.getpwnam("daemon")
own = pathlib.Path("/run/own")
own.mkdir()
config = pathlib.Path(os.environ["RAILYARD_SSH_CONFIG"])
(own / "config").write_text(config.read_text().replace(str(config.parent), str(own)))
for name in ("user_key", "known_hosts"):
    shutil.copy(config.parent / name, own)
    os.chown(own / name, user.pw_uid, -1)
os.environ |= {"SUDO_UID": str(user.pw_uid), "SUDO_GID": str(user.pw_gid), "RAILYARD_SSH_CONFIG": str(own / "config")}
with start("b") as b:
    ssh = [entry for entry in os.listdir("/proc") if entry.isdigit() and
           open(f"/proc/{entry}/comm").read() == "ssh\\n"]
    say([b.connection.call("user"), b.folder.stat().st_uid == user.pw_uid,
         [os.stat(f"/proc/{entry}").st_uid == user.pw_uid for entry in ssh]])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(b.folder / "here"))
        os.chown(b.folder / "here", user.pw_uid, -1)
        listener.listen()
        b.forward(b.remote_folder / "there", b.folder / "here")
        b.connection.begin("through", path=str(b.remote_folder / "there"), text="hello")
        listener.settimeout(5)
        say(listener.accept()[0].recv(100).decode())
"""
    assert lines(machines.head, code) == ["[0, true, [true]]", '"hello"']
    nothing_left(*machines, machines.head, longest_s=0.5)
