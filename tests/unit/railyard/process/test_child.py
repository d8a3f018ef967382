from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from railyard.errors import ConfigError, MachineError
from railyard.process.child import Child
from railyard.process.start import (
    MARK,
    MARK_VARIABLE,
    _given_by_parent,
    end_child,
    run_program,
    start_program,
    start_python,
)

ECHO = """
import os
from railyard.process.parent import Parent

def main():
    parent = Parent()
    parent.ready()
    parent.stops(10)
    parent.tell("result", settings=parent.settings, leads=os.getsid(0) == os.getpid())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "a_child_of_the_tests.py"


def test_settings_go_in_and_the_child_ends_when_told(module: Path) -> None:
    module.write_text(ECHO)
    with Child(module.stem, {"rate": 5}, (), "the child", patience_s=5) as child:
        assert child.answer(10) == {"op": "result", "settings": {"rate": 5}, "leads": True}
    with pytest.raises(MachineError, match="the child was not started"):
        child.answer(10)


def test_a_child_that_is_closed_before_it_is_ready_ends_without_a_word(
    module: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    module.write_text(
        ECHO.replace("parent.ready()", "parent.wait(10)\n    parent.ready()").partition("    parent.tell")[0]
    )
    child = Child(module.stem, {}, (), "the child", patience_s=10)
    child.begin()
    child.close()
    assert capfd.readouterr().err == ""


def test_a_child_that_is_told_to_stop_at_once_stops_at_once(module: Path) -> None:
    module.write_text(ECHO)
    child = start_python(module.stem, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    settings, stop = (b'{"op":"%s","fields":{}}\n' % op for op in (b"settings", b"stop"))
    child.stdin.write(settings + stop)  # in one piece, before the child reads
    child.stdin.flush()
    try:
        assert child.wait(5) == 0, "and not after the 10 s for which it waits"
        assert child.stdout.read().count(b"\n") == 2
    finally:
        end_child(child)


def test_descriptors_stay_open_under_their_numbers(module: Path) -> None:
    module.write_text(
        "import os\nfrom railyard.process.parent import Parent\nparent = Parent()\n"
        "os.write(parent.settings['fd'], b'here')\nparent.ready()\nparent.stops(10)\n"
    )
    reading, writing = os.pipe()
    try:
        Child(module.stem, {"fd": writing}, (writing,), "the child", patience_s=5).start().close()
        assert os.read(reading, 10) == b"here"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("text", ["raise SystemExit(1)", "print('something else')"])
def test_a_child_that_does_not_get_ready_is_an_error_and_gone(module: Path, text: str) -> None:
    module.write_text(text)
    with pytest.raises(MachineError, match="the child did not start"):
        Child(module.stem, {}, (), "the child").start()


def test_a_child_that_takes_too_long_is_said_to_be_late(module: Path) -> None:
    module.write_text("input()\ninput()")
    child = Child(module.stem, {}, (), "the child")
    child.begin()
    with pytest.raises(MachineError, match=r"the child was not ready within 0\.05 s; the machine is too slow"):
        child.ready(0.05)


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("last", ["", "os.write(1, b'not JSON')", "parent.tell('error', error='no')"])
def test_a_child_without_a_result_is_an_error(module: Path, stop: bool, last: str) -> None:
    module.write_text(
        f"import os\nfrom railyard.process.parent import Parent\nparent = Parent()\nparent.ready()\n{last}\n"
    )
    with Child(module.stem, {}, (), "the child") as child, pytest.raises(MachineError, match="without a result"):
        child.answer(10, stop=stop)


def test_a_program_that_gives_no_status_says_why() -> None:
    assert run_program(["cat"], 10, given="in\n") == (0, "in\n", "")
    failed = run_program(["sh", "-c", "pwd; echo first >&2; echo last >&2; exit 3"], 10)
    assert failed == (3, "/\n", "first\nlast\n") and failed.last_line == "last"
    assert run_program(["false"], 10).last_line == "it ended with status 1"
    assert run_program(["sleep", "60"], 0.05) == (-1, "", "no answer within 0.05 s")
    missing = run_program(["/no/such/program"], 10)
    assert missing.status == -1 and "No such file" in missing.last_line


def test_a_program_is_marked_and_has_nothing_to_read() -> None:
    with start_program(["sh", "-c", f"cat; echo ${MARK_VARIABLE}; exec ps -o sid= -p $$"], stdout=-1, text=True) as one:
        assert one.communicate(timeout=10)[0].split() == [MARK, str(one.pid)], "and leads a session of its own"


def test_a_child_that_does_not_end_is_killed() -> None:
    process = subprocess.Popen(["sleep", "100"], stdout=subprocess.PIPE, text=True)
    end_child(process)
    assert process.returncode == -9 and process.stdout and process.stdout.closed


def test_a_child_is_told_and_asked_until_it_ends(module: Path) -> None:
    module.write_text(
        "from railyard.errors import ConfigError\nfrom railyard.process.parent import Parent\nparent = Parent()\n"
        "told = []\ndef refuse():\n    raise ConfigError('is wrong', key='a')\n"
        "parent.operations = {'go': told.append, 'told': lambda: told, 'refuse': refuse}\n"
        "parent.ready(port=7)\nparent.serve()\n"
    )
    with Child(module.stem, {}, (), "the child", patience_s=5) as child:
        assert child.pid > 0 and child.told["port"] == 7
        child.tell("go", object=1)
        assert child.expect("error", 5)["of"] == "go", "which takes no such argument"
        with pytest.raises(ConfigError, match=r"^a: is wrong$"):
            child.call("refuse")
        assert child.call("told") == []
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert child.has_ended and child.status() == -9
        child.tell("nobody", text="x" * 100_000)
        with pytest.raises(MachineError, match="the child ended without a result"):
            child.answer(5)
    assert not child.has_ended


def test_a_child_that_is_begun_works_while_its_parent_does(module: Path) -> None:
    module.write_text(
        "import os\nfrom railyard.process.parent import Parent\nparent = Parent()\n"
        "os.write(parent.settings['fd'], b'begun')\nparent.ready()\nparent.serve()\n"
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
    monkeypatch.setattr("railyard.process.child.START_S", 0.5)
    module.write_text("import time\ntime.sleep(100)\n")
    child = Child(module.stem, {"names": "x" * 200_000}, (), "the child")
    with pytest.raises(MachineError, match=r"the child has taken nothing for 0\.5 s"):
        child.begin()


def test_settings_longer_than_a_pipe_go_in(module: Path) -> None:
    module.write_text(ECHO)
    with Child(module.stem, {"names": "x" * 500_000}, (), "the child", patience_s=5) as child:
        assert len(child.answer(10)["settings"]["names"]) == 500_000


def test_a_child_is_not_interrupted_while_it_imports(module: Path) -> None:
    module.write_text(
        "import sys\nprint('importing', flush=True)\nsys.stdin.readline()\ndef main():\n    print('done', flush=True)\n"
    )
    child = start_python(module.stem, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "importing\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate("go on\n", timeout=10)[0] == "done\n"
    assert child.returncode == 0
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "of its parent"


def test_a_child_whose_parent_has_died_prints_no_traceback(module: Path) -> None:
    module.with_name("a_talking_child.py").write_text(
        "import os\nfrom railyard.process.parent import Parent\n"
        "parent, first = Parent(), os.getppid()\nparent.ready()\n"
        "while os.getppid() == first:\n    pass\nparent.ready()\n"
    )
    module.write_text(
        "from railyard.process.child import Child\n"
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
        "from railyard.process.start import start_python\n"
        f"start_python('a_slow_child', pass_fds=[{writing}])\n"
        "signal.pause()\n"
    )
    module.with_name("a_slow_child.py").write_text(
        "import os, time\n"
        "parent = os.getppid()\n"
        f"os.write({writing}, b'%d\\n' % os.getpid())\n"
        "while os.getppid() == parent:\n    time.sleep(0.001)\n"
        "from railyard.process.start import die_with_parent\n"
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
