"""A learning switch: an OpenFlow app makes a bare switch learn where hosts are."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commands.exercises.exercise import Exercise, ExercisePart, Missing, last_sentence
from commands.exercises.frames import EVERYBODY, RailPorts, rail_ports
from commands.lab.lab import Lab, LabSpec
from railyard.ownership import temporary_folder
from railyard.process.start import as_caller, end_child, start_python

FILE = "learning_switch.py"
FABRIC = {"servers": "4", "gpus": "1", "ports": "1", "fabric": "electrical"}
"""Hosts g0 to g3 at ports 1 to 4."""
G0, G1, STRANGER = "02:00:00:00:00:a0", "02:00:00:00:00:a1", "02:00:00:00:00:a9"
"""Addresses that are used here alone, so that nothing else that hosts send teaches the switch where they are."""
ARRIVES_S, STRAYS_S, SETTLES_S, MOVED_S = 2.0, 0.2, 1.0, 3.0
"""Longest wait for a frame, wait for more of them, time for the app to install flows, and to follow a host."""


class Switch:
    """The switch under the student's ``app``: frames go in at one port, and come out at others."""

    def __init__(self, ports: RailPorts, app: subprocess.Popen[bytes]) -> None:
        self._ports, self._app, self._number = ports, app, 0

    def outputs(self, port: int, to: str, source: str, expected: set[int]) -> set[int]:
        """The ports at which a frame comes out; it is waited for until it was at all that are ``expected``."""
        self._number += 1
        self._ports.send(port, self._number, to, source)
        end, found = time.monotonic() + ARRIVES_S, set[int]()
        while not expected <= found and time.monotonic() < end:
            found |= {came for number, _, came in self._ports.arrived(STRAYS_S) if number == self._number}
        return found

    def must_pass(self, port: int, to: str, source: str, expected: set[int], what: str) -> None:
        """Raise ``Missing`` about ``what`` unless a frame comes out at the ``expected`` ports and no other."""
        found = self.outputs(port, to, source, expected)
        if found != expected:
            named = ", ".join(f"g{each - 1}" for each in sorted(found)) or "no host"
            wanted = ", ".join(f"g{each - 1}" for each in sorted(expected))
            raise Missing(f"{what} came to {named}, and should come to {wanted}")

    def introduce(self) -> None:
        """Let g0 and g1 send to everybody and to each other, so that the switch learns where they are."""
        self.outputs(1, EVERYBODY, G0, {2, 3, 4})
        self.outputs(2, EVERYBODY, G1, {1, 3, 4})
        for _ in range(2):
            self.must_pass(1, G1, G0, {2}, "a frame from g0 to g1, which had sent before,")
            self.must_pass(2, G0, G1, {1}, "a frame from g1 to g0, which had sent before,")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within it the app stands still: the switch has its flows, and nobody to ask."""
        time.sleep(SETTLES_S)
        self._app.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._app.send_signal(signal.SIGCONT)


@contextmanager
def switch_of(folder: Path) -> Iterator[Switch]:
    """The student's app, run as the caller of sudo, and a switch that has joined it."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        host, port = held.getsockname()
    caller = as_caller()
    with temporary_folder() as place, open(place / "log", "wb") as log:
        command = ["manager", "os-ken", str(folder / FILE), "--ofp-tcp-listen-port", str(port)]
        streams = {"environment": caller.pop("env"), "stdout": log, "stderr": subprocess.STDOUT}
        app = start_python("commands.command_process", *command, **streams, **caller)
        try:
            while not _listens(host, port):
                time.sleep(0.1)
                if app.poll() is not None:
                    raise Missing(f"the app did not start: {last_sentence(place / 'log', folder)}")
            spec = LabSpec("rails", FABRIC, controller="remote", remote=f"{host}:{port}", datapath="ovs")
            with Lab(spec) as lab, rail_ports(lab.net) as ports:
                yield Switch(ports, app)
        except Missing as missing:
            raise Missing(f"{missing}{_trouble((place / 'log').read_text(errors='replace'))}") from None
        finally:
            app.terminate()
            end_child(app, SETTLES_S)


def _listens(host: str, port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex((host, port)) == 0


def _trouble(log: str) -> str:
    """The last error in the ``log`` of an app, with its line in the student's file; empty if there is none."""
    lines = re.findall(rf'{FILE}", line (\d+)', log)
    errors = re.findall(r"^(\w+(?:Error|Exception)\b.*)$", log, re.MULTILINE)
    return f"; line {lines[-1]} of {FILE}: {errors[-1]}" if lines and errors else ""


def check_stranger(folder: Path) -> None:
    with switch_of(folder) as switch:
        switch.must_pass(1, STRANGER, G0, {2, 3, 4}, "a frame from g0 to an address that never sent")
        switch.must_pass(2, EVERYBODY, G1, {1, 3, 4}, "a frame from g1 to everybody")


def check_known(folder: Path) -> None:
    with switch_of(folder) as switch:
        switch.introduce()


def check_alone(folder: Path) -> None:
    with switch_of(folder) as switch:
        switch.introduce()
        with switch.alone():
            switch.must_pass(1, G1, G0, {2}, "while the app stood still, a frame from g0 to g1")
            switch.must_pass(2, G0, G1, {1}, "while the app stood still, a frame from g1 to g0")


def check_moved(folder: Path) -> None:
    with switch_of(folder) as switch:
        switch.introduce()
        time.sleep(SETTLES_S)
        end = time.monotonic() + MOVED_S
        switch.outputs(3, EVERYBODY, G1, {1, 2, 4})
        while switch.outputs(1, G1, G0, {3}) != {3}:
            if time.monotonic() > end:
                switch.must_pass(1, G1, G0, {3}, "g1 moved to the port of g2; after that a frame from g0 to g1")


EXERCISE = Exercise(
    name="learning-switch",
    title="A switch that learns where hosts are",
    file=FILE,
    root=True,
    parts=(
        ExercisePart(2, "a frame to a stranger, or to everybody, reaches all others", check_stranger),
        ExercisePart(3, "a frame to a host that has sent reaches it alone", check_known),
        ExercisePart(3, "later frames do not need the app", check_alone),
        ExercisePart(2, "a host that moves is found at its new port", check_moved),
    ),
)
