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

from commands.command_process import last_line
from commands.exercises.exercise import Exercise, ExercisePart, Missing
from commands.exercises.frames import EVERYBODY, RailPorts
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

    def __init__(self, ports: RailPorts, app: subprocess.Popen[bytes], log: Path) -> None:
        self.app, self._ports, self._log, self._number = app, ports, log, 0

    def outputs(self, port: int, to: str, source: str, expected: set[int]) -> set[int]:
        """The ports at which a frame comes out; it is waited for until it was at all that are ``expected``."""
        self._number += 1
        self._ports.send(port, self._number, to, source)
        end, reached = time.monotonic() + ARRIVES_S, set[int]()
        while not expected <= reached and time.monotonic() < end:
            reached |= {came for number, _, came in self._ports.arrived(STRAYS_S) if number == self._number}
        return reached

    def must_pass(self, port: int, to: str, source: str, expected: set[int], frame: str) -> None:
        """Raise ``Missing`` about the ``frame`` unless it comes out at the ``expected`` ports and no other."""
        reached = self.outputs(port, to, source, expected)
        if reached != expected:
            named, wanted = (", ".join(f"g{port - 1}" for port in sorted(ports)) for ports in (reached, expected))
            raise Missing(f"{frame} came to {named or 'no host'}, and should come to {wanted}{_trouble(self._log)}")


@contextmanager
def switch_of(file: Path) -> Iterator[Switch]:
    """The student's app, run as the caller of sudo, and a switch that has joined it."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        host, port = held.getsockname()
    caller = as_caller()
    with temporary_folder() as place, open(place / "log", "wb") as log, socket.socket() as probe:
        command = ["manager", "os-ken", str(file), "--ofp-tcp-listen-port", str(port)]
        streams = {"environment": caller.pop("env"), "stdout": log, "stderr": subprocess.STDOUT}
        app = start_python("commands.command_process", *command, **streams, **caller)
        try:
            while probe.connect_ex((host, port)):
                time.sleep(0.1)
                if app.poll() is not None:
                    raise Missing(f"the app did not start: {last_line(place / 'log', f'{file.parent}/')}")
            spec = LabSpec("rails", FABRIC, controller="remote", remote=f"{host}:{port}", datapath="ovs")
            with Lab(spec) as lab, RailPorts(lab.net) as ports:
                yield Switch(ports, app, place / "log")
        finally:
            app.terminate()
            end_child(app, SETTLES_S)


def _trouble(log: Path) -> str:
    """The last error in the ``log`` of an app, with its line in the student's file; empty if there is none."""
    text = log.read_text("utf-8", "replace")
    lines = re.findall(rf'{FILE}", line (\d+)', text)
    errors = re.findall(r"^(\w+(?:Error|Exception)\b.*)$", text, re.MULTILINE)
    return f"; line {lines[-1]} of {FILE}: {errors[-1]}" if lines and errors else ""


def check_stranger(switch: Switch) -> None:
    switch.must_pass(1, STRANGER, G0, {2, 3, 4}, "a frame from g0 to an address that never sent")
    switch.must_pass(2, EVERYBODY, G1, {1, 3, 4}, "a frame from g1 to everybody")


def check_known(switch: Switch) -> None:
    switch.outputs(2, EVERYBODY, G1, {1, 3, 4})
    for _ in range(2):
        switch.must_pass(1, G1, G0, {2}, "a frame from g0 to g1, which had sent before,")
        switch.must_pass(2, G0, G1, {1}, "a frame from g1 to g0, which had sent before,")


def check_alone(switch: Switch) -> None:
    time.sleep(SETTLES_S)
    switch.app.send_signal(signal.SIGSTOP)
    try:
        switch.must_pass(1, G1, G0, {2}, "while the app stood still, a frame from g0 to g1")
        switch.must_pass(2, G0, G1, {1}, "while the app stood still, a frame from g1 to g0")
    finally:
        switch.app.send_signal(signal.SIGCONT)


def check_moved(switch: Switch) -> None:
    """G1 sends from the port of g2; from then on it must be found there."""
    end = time.monotonic() + MOVED_S
    switch.outputs(3, EVERYBODY, G1, {1, 2, 4})
    while switch.outputs(1, G1, G0, {3}) != {3}:
        if time.monotonic() > end:
            switch.must_pass(1, G1, G0, {3}, "g1 moved to the port of g2; after that a frame from g0 to g1")


PARTS = (
    ExercisePart(2, "a frame to a stranger, or to everybody, reaches all others", check_stranger),
    ExercisePart(3, "a frame to a host that has sent reaches it alone", check_known),
    ExercisePart(3, "later frames do not need the app", check_alone),
    ExercisePart(2, "a host that moves is found at its new port", check_moved),
)
TITLE = "A switch that learns where hosts are"
EXERCISE = Exercise("learning-switch", TITLE, FILE, PARTS, root=True, begin=switch_of)
