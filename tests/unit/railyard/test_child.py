from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from railyard.child import Child, _given_by_parent, end_child, start_python
from railyard.errors import ConfigError, MachineError

ECHO = """
import json, os
from railyard.child import read_settings, stop_requested
settings = read_settings()
print("ready", flush=True)
while not stop_requested(10):
    pass
print(json.dumps({"settings": settings, "leads": os.getsid(0) == os.getpid()}), flush=True)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "a_child_of_the_tests.py"


def test_settings_go_in_and_the_child_ends_when_told(module: Path) -> None:
    module.write_text(ECHO)
    with Child(module.stem, {"rate": 5}, (), "the child", patience_s=5) as child:
        assert child.answer(10) == {"settings": {"rate": 5}, "leads": True}
    with pytest.raises(MachineError, match="the child was not started"):
        child.answer(10)


def test_a_child_that_is_told_to_stop_at_once_stops_at_once(module: Path) -> None:
    module.write_text(ECHO)
    child = start_python(module.stem, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(b'{"rate": 5}\nstop\n')  # in one piece, before the child reads
    child.stdin.flush()
    try:
        assert child.wait(5) == 0, "and not after the 10 s for which it waits"
        assert child.stdout.read().count(b"\n") == 2
    finally:
        end_child(child)


def test_descriptors_stay_open_under_their_numbers(module: Path) -> None:
    module.write_text(
        "import os, json, sys\nos.write(json.loads(sys.stdin.readline())['fd'], b'here')\nprint('ready')\n"
    )
    reading, writing = os.pipe()
    try:
        Child(module.stem, {"fd": writing}, (writing,), "the child", patience_s=5).start().close()
        assert os.read(reading, 10) == b"here"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("text", ["raise SystemExit(1)", "print('something else')\ninput()\ninput()"])
def test_a_child_that_does_not_get_ready_is_an_error_and_gone(module: Path, text: str) -> None:
    module.write_text(text)
    with pytest.raises(MachineError, match="the child did not start"):
        Child(module.stem, {}, (), "the child").start()


def test_a_child_that_takes_too_long_is_said_to_be_late(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module.write_text("input()\ninput()")
    monkeypatch.setattr("railyard.child._START_S", 0.05)
    with pytest.raises(MachineError, match=r"the child was not ready within 0\.05 s"):
        Child(module.stem, {}, (), "the child").start()


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("last", ["", "print('not JSON')"])
def test_a_child_without_a_result_is_an_error(module: Path, stop: bool, last: str) -> None:
    module.write_text(f"print('ready', flush=True)\n{last}\n")
    with Child(module.stem, {}, (), "the child") as child, pytest.raises(MachineError, match="without a result"):
        child.answer(10, stop=stop)


def test_a_child_that_does_not_end_is_killed() -> None:
    process = subprocess.Popen(["sleep", "100"], stdout=subprocess.PIPE, text=True)
    end_child(process)
    assert process.returncode == -9 and process.stdout and process.stdout.closed


def test_a_child_is_told_lines_until_it_ends(module: Path) -> None:
    module.write_text(
        "import sys\nsys.stdin.readline()\nprint('ready', flush=True)\n"
        "print(repr(sys.stdin.readline()).replace(\"'\", '\"'), flush=True)\n"
    )
    with Child(module.stem, {}, (), "the child", patience_s=5) as child:
        assert child.pid > 0
        child.tell("go")
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.has_ended
        child.tell("nobody listens")
        assert child.answer(5, stop=False) == "go\n"
    assert not child.has_ended


def test_a_child_that_is_begun_works_while_its_parent_does(module: Path) -> None:
    module.write_text(
        "import json, os, sys\nos.write(json.loads(sys.stdin.readline())['fd'], b'begun')\n"
        "print('ready', flush=True)\nsys.stdin.readline()\n"
    )
    reading, writing = os.pipe()
    try:
        child = Child(module.stem, {"fd": writing}, (writing,), "the child", patience_s=5)
        with pytest.raises(MachineError, match="the child was not started"):
            child.ready()
        child.begin()
        assert os.read(reading, 10) == b"begun"
        assert child.ready() is child and not child.has_ended
        child.close()
    finally:
        os.close(reading)
        os.close(writing)


def test_a_child_that_is_begun_and_never_ready_ends_with_its_close(module: Path) -> None:
    module.write_text("import time\ntime.sleep(100)\n")
    child = Child(module.stem, {}, (), "the child")
    child.begin()
    pid = child.pid
    child.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_parent_with_more_descriptors_than_select_takes(module: Path, many_open_files: None) -> None:
    """The parent of a fabric of 512 hosts has one for each of their namespaces."""
    module.write_text(ECHO)
    with Child(module.stem, {}, (), "the child", patience_s=5) as child:
        assert child.answer(10)["settings"] == {}


def test_a_child_that_reads_nothing_blocks_nobody(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe holds 64 kB; settings and orders of large fabrics are longer."""
    monkeypatch.setattr("railyard.child._START_S", 0.5)
    module.write_text("import time\ntime.sleep(100)\n")
    child = Child(module.stem, {"names": "x" * 200_000}, (), "the child")
    with pytest.raises(MachineError, match=r"the child has not read what it was told within 0\.5 s"):
        child.begin()
    module.write_text("import sys, time\nsys.stdin.readline()\nprint('ready', flush=True)\ntime.sleep(100)\n")
    monkeypatch.setattr("railyard.child._START_S", 30)
    with child:
        monkeypatch.setattr("railyard.child._START_S", 0.2)
        with pytest.raises(MachineError, match="the child has not read"):
            child.tell("y" * 200_000)


def test_settings_longer_than_a_pipe_go_in(module: Path) -> None:
    module.write_text(ECHO)
    with Child(module.stem, {"names": "x" * 500_000}, (), "the child", patience_s=5) as child:
        assert len(child.answer(10)["settings"]["names"]) == 500_000


def test_lines_that_come_at_once_are_read_one_by_one(module: Path) -> None:
    module.write_text(
        "import os\ninput()\nos.write(1, b'ready\\nconnected\\nha')\ninput()\nos.write(1, b'lf\\n')\ninput()\ninput()\n"
    )
    with Child(module.stem, {}, (), "the child") as child:
        assert child.line(10) == "connected\n"
        assert child.line(0.01) == "", "half a line is none"
        child.tell("go on")
        assert child.line(10) == "half\n"


def test_a_child_is_not_interrupted_while_it_imports(module: Path) -> None:
    module.write_text("import sys\nprint('importing', flush=True)\nsys.stdin.readline()\nprint('done', flush=True)\n")
    child = start_python(module.stem, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "importing\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate("go on\n", timeout=10)[0] == "done\n"
    assert child.returncode == 0
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "of its parent"


def test_a_child_whose_parent_has_died_prints_no_traceback(module: Path) -> None:
    module.with_name("a_talking_child.py").write_text(
        "import os\nfrom railyard import child\nchild.read_settings()\n"
        "print('ready', flush=True)\nwhile os.getppid() == child._PARENT:\n    pass\nprint('no reader', flush=True)\n"
    )
    module.write_text(
        "from railyard.child import Child\n"
        "Child('a_talking_child', {}, (), 'the child').start()\nprint('ready', flush=True)\ninput()\n"
    )
    parent = start_python(module.stem, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    parent.kill()
    assert "Traceback" not in parent.communicate(timeout=10)[1], "read until the child has ended too"


def test_a_parent_that_was_set_by_hand_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAILYARD_PARENT", "12")
    monkeypatch.setenv("RAILYARD_MARK", "m")
    assert _given_by_parent() == (12, "m")
    assert "RAILYARD_PARENT" not in os.environ
    for parent, mark in (("nonsense", "m"), ("", "m"), ("-1", "m"), ("12", None)):
        monkeypatch.setenv("RAILYARD_PARENT", parent)
        monkeypatch.setenv("RAILYARD_MARK", mark) if mark else monkeypatch.delenv("RAILYARD_MARK")
        with pytest.raises(ConfigError, match=r"^RAILYARD_PARENT: is set by Railyard, .*; unset it$"):
            _given_by_parent()
    assert _given_by_parent() is None


def test_a_child_whose_parent_dies_while_it_imports_ends(module: Path) -> None:
    """What getppid() says after the import would be the new parent, which stays."""
    reading, writing = os.pipe()
    module.write_text(
        "import os, signal\n"
        "from railyard.child import start_python\n"
        f"start_python('a_slow_child', pass_fds=[{writing}])\n"
        "signal.pause()\n"
    )
    module.with_name("a_slow_child.py").write_text(
        "import os, time\n"
        "parent = os.getppid()\n"
        f"os.write({writing}, b'%d\\n' % os.getpid())\n"
        "while os.getppid() == parent:\n    time.sleep(0.001)\n"
        "from railyard.child import die_with_parent\n"
        "die_with_parent()\n"
        f"os.write({writing}, b'orphaned')\n"
        "time.sleep(60)\n"
    )
    parent = start_python(module.stem, pass_fds=[writing])
    os.close(writing)
    with os.fdopen(reading) as said:
        orphan = int(said.readline())
        parent.kill()
        parent.wait()
        try:
            assert said.read() == "", "the end of the file: it has ended"
        finally:
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
