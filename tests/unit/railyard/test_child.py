from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from railyard.child import end_child, request_stop, start_child
from railyard.errors import MachineError

ECHO = """
import os, sys
settings = sys.stdin.readline()
print("ready", flush=True)
assert sys.stdin.readline() == "stop\\n"
print(settings.strip(), os.getsid(0) == os.getpid(), flush=True)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "a_child_of_the_tests.py"


@pytest.mark.parametrize("own_session", [False, True])
def test_settings_go_in_and_the_child_ends_when_told(module: Path, own_session: bool) -> None:
    module.write_text(ECHO)
    process = start_child(module.stem, {"rate": 5}, (), "the child", own_session=own_session)
    request_stop(process)
    assert process.stdout and process.stdout.read() == f"{json.dumps({'rate': 5})} {own_session}\n"
    end_child(process, 5)
    assert process.returncode == 0 and process.stdout.closed


def test_descriptors_stay_open_under_their_numbers(module: Path) -> None:
    module.write_text("import os, json, sys\nos.write(json.loads(sys.stdin.readline()), b'here')\nprint('ready')\n")
    reading, writing = os.pipe()
    try:
        end_child(start_child(module.stem, writing, (writing,), "the child"), 5)  # type: ignore[arg-type]
        assert os.read(reading, 10) == b"here"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("text", ["raise SystemExit(1)", "print('something else')\ninput()\ninput()"])
def test_a_child_that_does_not_get_ready_is_an_error_and_gone(module: Path, text: str) -> None:
    module.write_text(text)
    with pytest.raises(MachineError, match="the child did not start"):
        start_child(module.stem, {}, (), "the child")


def test_a_child_that_does_not_end_is_killed(module: Path) -> None:
    module.write_text("import signal\nprint('ready', flush=True)\nsignal.pause()\n")
    process = start_child(module.stem, {}, (), "the child")
    end_child(process)
    assert process.returncode == -9
