"""``osken-manager`` and ``ryu-manager``: what they say of apps that do not start, where they listen, how they end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import ROOT, SCRIPTS

BASES = {"os-ken": ("os_ken", "OSKenApp"), "ryu": ("ryu", "RyuApp")}
PROGRAMS = {"os-ken": "osken-manager", "ryu": "ryu-manager"}
APP = """
from {package}.base import app_manager
from {package}.controller import ofp_event
from {package}.controller.handler import MAIN_DISPATCHER, set_ev_cls

class Own(app_manager.{base}):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        {line}

    @set_ev_cls(ofp_event.EventOFPEchoReply, MAIN_DISPATCHER)
    def replied(self, event):
        pass
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment of this checkout that has what the one of the tests has."""
    venv = tmp_path / "venv"
    venv.mkdir()
    for name in ("bin", "lib"):
        (venv / name).symlink_to(Path(sys.prefix) / name)
    (venv / "pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text())
    return {**os.environ, "RAILYARD_VENV": str(venv)}


def app(folder: Path, framework: str, line: str) -> str:
    package, base = BASES[framework]
    file = folder / "own_app.py"
    file.write_text(APP.format(package=package, base=base, line=line))
    return str(file)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("framework", "line", "named", "sentence"),
    [
        ("os-ken", "raise RuntimeError('no plan')", None, r"own_app.py: .*: RuntimeError: no plan \(.*py:9\)"),
        ("ryu", "raise RuntimeError('no plan')", None, r"own_app.py: .*: RuntimeError: no plan \(.*py:9\)"),
        ("os-ken", "x = (", None, r"own_app.py: cannot be started: SyntaxError: .*\(own_app.py, line 9\)"),
        ("os-ken", "", "nowhere.at_all", r"nowhere.at_all: cannot be started: ModuleNotFoundError: No module named"),
        ("os-ken", "", "my_ap.py", r"there is no file my_ap.py; name a Python file that exists"),
        ("os-ken", "", str(ROOT / "railyard" / "errors.py"), r"errors.py: has no app, a class that is derived"),
    ],
)
def test_an_app_that_does_not_start_is_one_sentence(
    framework: str, line: str, named: str | None, sentence: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    words = [str(SCRIPTS / PROGRAMS[framework]), "--ofp-tcp-listen-port", str(free_port())]
    own = app(tmp_path, framework, line)
    done = subprocess.run([*words, named or own], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert re.search(sentence, done.stderr.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("framework", PROGRAMS)
def test_an_app_listens_on_loopback_alone_and_ends_at_a_signal(
    framework: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    port, started = free_port(), tmp_path / "pid"
    words = [str(SCRIPTS / PROGRAMS[framework]), "--ofp-tcp-listen-port", str(port), "--pid-file", str(started)]
    own = app(tmp_path, framework, "pass")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([*words, own], env=environment, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 20
        while not (listening := addresses(port)) and time.monotonic() < end:
            time.sleep(0.02)
        assert listening == ["0100007F"] and started.read_text() == str(process.pid)
        taken = subprocess.run([*words, own], env=environment, capture_output=True, text=True, timeout=30)
        assert taken.returncode == 3
        assert f"nothing can listen at 127.0.0.1:{port}: Address already in use" in taken.stderr.splitlines()[-1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 130
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in (tmp_path / "log").read_text()


def addresses(port: int) -> list[str]:
    """The addresses of this machine, in hexadecimal digits, at which something listens at a TCP port."""
    lines = [line for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]]
    found = [line.split()[1].split(":") for line in lines if line.split()[3] == "0A"]
    return [address for address, number in found if int(number, 16) == port]
