"""``railyard watch`` and ``railyard run --watch``: sentences, address, end, and files that are only read."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import pytest
from checkout import ROOT
from script_runs import called, hear_signals
from watch.folders import finished_folder, locked
from watch.rail_results import rail_results

from commands.page.serving import Companion, listen, page_address, started, url
from controllers.northbound.token import new_token
from railyard.process.start import child_environment, python_command

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("results")
    finished_folder(made)
    (made / "figures").mkdir()
    (made / "figures" / "a.png").write_bytes(b"\x89PNG")
    return made


def test_control_of_a_run_that_has_ended_is_refused(folder: Path) -> None:
    found = called("watch", folder, "--control")
    sentence = f"railyard: --control: {folder} holds a run that has ended; leave --control out\n"
    assert (found.returncode, found.stderr) == (2, sentence)
    with locked(folder):
        found = called("watch", folder, "--control")
    assert found.stderr == "railyard: --control: the run has no REST interface; start it with --watch --control\n"


def test_a_port_that_is_taken_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        about = f"127.0.0.1:{port} is in use by another program; give another port, or port 0 for any free one\n"
        found = called("watch", folder, "--port", port)
        assert (found.returncode, found.stderr) == (2, f"railyard: --port: {about}")
        found = called("run", "fabric-cost", "--watch", port, "--out", tmp_path / "out")
        assert (found.returncode, found.stderr) == (2, f"railyard: --watch: {about}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_page_is_served_until_a_signal(folder: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        python_command("commands.main", "watch", str(folder)),
        cwd="/",
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,
    )
    try:
        assert process.stdout is not None
        address, how = process.stdout.readline().strip(), process.stdout.readline()
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/[A-Za-z0-9_-]{43}/", address), process.communicate()
        port = address.split(":")[2].partition("/")[0]
        assert f"ssh -L {port}:127.0.0.1:{port} " in how and how.endswith("Ctrl-C ends the page.\n")
        with (
            urlopen(address, timeout=PATIENCE_S) as page,
            urlopen(f"{address}overview.json", timeout=PATIENCE_S) as data,
        ):
            assert b"<html" in page.read() and b'"points":[{"number":0' in data.read()
        other = os.listdir(f"/proc/{process.pid}/task")[1]
        os.kill(int(other), number)  # which that thread gets: any thread may get one that is for the process
        assert process.communicate(timeout=PATIENCE_S) == ("", "")
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="raises the priority of a process")
def test_a_page_beside_other_work_yields_until_it_ends() -> None:
    code = (
        "import os; from commands.page.serving import be_modest, hurry; be_modest();"
        "print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.getpriority(os.PRIO_PROCESS, 0)); hurry();"
        "print(os.sched_getscheduler(0) == os.SCHED_OTHER, os.getpriority(os.PRIO_PROCESS, 0))"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=child_environment(), capture_output=True, text=True)
    assert found.stdout == "True 19\nTrue 0\n"


# ---- files are only read ---------------------------------------------------------------------------------------------

_READING: list[list[str]] = []
_CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.link",
            "os.symlink", "os.utime", "os.setxattr", "shutil.rmtree"}  # fmt: skip


def _hear(event: str, given: tuple[object, ...]) -> None:
    if not _READING:
        return
    if event == "open":
        path, _, flags = given
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            _READING[0].append(f"{event} {path} {flags}")
    elif event in _CHANGES:
        _READING[0].append(f"{event} {given}")


sys.addaudithook(_hear)  # which cannot be removed


@contextmanager
def changes() -> Iterator[list[str]]:
    _READING.append([])
    try:
        yield _READING[0]
    finally:
        _READING.pop()


def test_the_folder_is_only_read(folder: Path, tmp_path: Path) -> None:
    with changes() as seen:
        (tmp_path / "x").write_text("x")
        assert len(seen) == 1  # so it would be seen
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*")}
    with locked(folder), changes() as seen:
        listening, token = listen(page_address("0"), "--port"), new_token()
        files, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, 512), most_files))
        server = started(folder, listening, token, None)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most_files, most_files)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most_files))
        for path in ("", "overview.json", "timeline.json?point=1", "state.json?point=0", "strips.json?point=0",
                     "figures/a.png"):  # fmt: skip
            with urlopen(f"{url(listening, token)}{path}", timeout=PATIENCE_S) as answer:
                assert answer.status == 200 and answer.read()
        server.close("")
        assert seen == []
    assert before == {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*")}


# ---- beside a run ----------------------------------------------------------------------------------------------------


class NoToken:
    """Settings of a run without a REST interface."""

    rest_token_file = None


def test_the_page_beside_a_run_ends_with_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with Companion("127.0.0.1:0", False) as page:
        page.begin(folder, NoToken(), said.append)
        address = said[0].removeprefix("Page of the run: ")
        with urlopen(f"{address}overview.json", timeout=PATIENCE_S) as answer:
            assert b'"control":false' in answer.read()
        stream = urlopen(f"{address}stream", timeout=PATIENCE_S)
        assert b"retry" in stream.readline()
        monkeypatch.setattr("commands.page.serving._PATIENCE_S", PATIENCE_S)  # a busy machine may need that
    sentence = f'data: {{"says":"the run has ended; railyard watch {folder} shows it again"}}'
    assert stream.read().decode().strip().endswith(f"event: over\n{sentence}")
    stream.close()
    with pytest.raises(OSError, match="refused"):
        urlopen(address, timeout=PATIENCE_S)
    assert len(said) == 1


def test_a_page_that_dies_is_said_once_and_the_run_goes_on(folder: Path) -> None:
    said: list[str] = []
    with Companion("127.0.0.1:0", False) as page:
        page.begin(folder, NoToken(), said.append)
        assert page._child is not None
        os.kill(page._child.pid, signal.SIGKILL)
        end = time.monotonic() + PATIENCE_S
        while len(said) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert said[1:] == [f"the page of --watch has ended, and the run goes on; railyard watch {folder} shows it again"]


def test_a_page_that_hangs_does_not_hold_the_end_of_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.page.serving._PATIENCE_S", 0.2)
    with Companion("127.0.0.1:0", False) as page:
        page.begin(folder, NoToken(), lambda text: None)
        assert page._child is not None
        os.kill(page._child.pid, signal.SIGSTOP)
        began = time.monotonic()
    assert time.monotonic() - began < 5.0


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user of a process")
def test_the_page_of_a_user_s_results_is_served_by_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "12346")
    with TemporaryDirectory() as above:
        folder = Path(above, "results")
        folder.mkdir()
        finished_folder(folder)
        for owner, mode, found in ((12345, 0o755, "12345"), (54321, 0o755, "0"), (12345, 0o700, "0")):
            os.chown(folder, owner, -1)
            os.chmod(above, mode)
            said: list[str] = []
            with Companion("127.0.0.1:0", False) as page:
                page.begin(folder, NoToken(), said.append)
                with urlopen(said[0].removeprefix("Page of the run: "), timeout=PATIENCE_S):
                    assert page._child is not None and users(page._child.pid) == {found}


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user of a process")
def test_a_user_who_may_not_read_the_checkout_gets_the_same_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "12346")
    start, was = python_command, tmp_path / "was"
    was.mkdir()
    with TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        folder = rail_results(Path(above, "results"))
        os.chown(folder, 12345, -1)
        by_root = started(folder, listening := listen("127.0.0.1:0", ""), token := new_token(), None)
        wanted = answers_of(url(listening, token))
        by_root.close("")
        closed = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", CLOSE, "sh", str(ROOT), str(was)]
        monkeypatch.setattr("railyard.process.start.python_command", lambda *words: [*closed, *start(*words)])
        said: list[str] = []
        with Companion("127.0.0.1:0", False) as page:
            page.begin(folder, NoToken(), said.append)
            assert answers_of(said[0].removeprefix("Page of the run: ")) == wanted
            assert page._child is not None and users(page._child.pid) == {"12345"}


CLOSE = """
    mount --bind "$1" "$2"
    mount -t tmpfs -o mode=700 closed "$1"
    for path in "$2"/* "$2"/.venv; do
        if [ -d "$path" ]; then mkdir "$1/${path##*/}"; elif [ -e "$path" ]; then : >"$1/${path##*/}"; else continue; fi
        mount --bind "$path" "$1/${path##*/}"
    done
    shift 2
    exec "$@"
"""
"""Runs a command where root alone may enter the folder $1, as in root's home; $2 is an empty folder."""


def answers_of(address: str) -> dict[str, bytes]:
    """What a server at ``address`` answers to a page about a run."""
    paths = ["", "main.js", "vendor/uPlot.iife.min.js", "overview.json", *(
        f"{name}.json?point={point}" for name in ("timeline", "strips", "state") for point in (0, 1))]  # fmt: skip
    found = {}
    for path in paths:
        with urlopen(f"{address}{path}", timeout=PATIENCE_S) as answer:
            found[path] = answer.read()
    return found


def users(pid: int) -> set[str]:
    """The user ids of a process: real, effective, saved, of the file system."""
    status = Path(f"/proc/{pid}/status").read_text()
    return set(re.findall(r"^Uid:\t(.*)$", status, re.MULTILINE)[0].split("\t"))


def test_without_the_option_nothing_is_started(folder: Path) -> None:
    with Companion(None, False) as page:
        page.begin(folder, NoToken(), lambda text: pytest.fail(text))
        assert page._child is None


def test_a_page_that_cannot_be_started_is_told_and_the_run_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    said: list[str] = []
    monkeypatch.setattr("railyard.process.child.Child.begin", refused)
    with Companion("127.0.0.1:0", False) as page:
        page.begin(folder, NoToken(), said.append)
    assert len(said) == 1 and "the page of --watch cannot be started" in said[0] and "the run goes on" in said[0]
