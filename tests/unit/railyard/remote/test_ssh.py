from __future__ import annotations

import re
import socket
import stat
import time
from pathlib import Path

import pytest
from checkout import ROOT

from railyard import __version__
from railyard.errors import ConfigError, MachineError
from railyard.remote.ssh import Address, RemoteProcess
from railyard.remote.ssh_faults import cause

SERVICE = "cluster.remote_service"


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of these tests is found by the children of this one."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "support"))


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("b", ["--", "b"]),
        ("me@b-2.rack_1.example:2222", ["-l", "me", "-p", "2222", "--", "b-2.rack_1.example"]),
        ("[fe80::1]:22", ["-p", "22", "--", "fe80::1"]),
        ("10.0.0.1", ["--", "10.0.0.1"]),
    ],
)
def test_addresses_are_arguments_of_ssh(machine: str, words: list[str]) -> None:
    assert Address.of(machine).words == words


@pytest.mark.parametrize(
    "machine",
    [
        "",
        "-oProxyCommand=x",
        "a b",
        "b:0",
        "b:65536",
        "b:x",
        "@b",
        "-l@b",
        "a@-b",
        "b\n",
        "b;x",
        "$(x)",
        "a,b",
        "[::1",
        "b" * 300,
    ],
)
def test_what_is_no_address_is_refused_with_its_key(machine: str) -> None:
    with pytest.raises(ConfigError, match=r"is no machine; write \[user@\]host\[:port\], or local") as caught:
        Address.of(machine, "--cluster")
    assert caught.value.key == "--cluster"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Host key verification failed.", "the host key of machine b is not known; log in once by hand"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "is not the one that is known; .* ssh-keygen -R"),
        ("x@b: Permission denied (publickey).", r"accepts no key of this user \(x@b: Permission .* ssh-copy-id"),
        ("ssh: connect to host b port 22: Connection refused", r"cannot be reached \(ssh: .* is it running"),
        ("ssh: connect to host b port 22: Connection timed out", "cannot be reached"),
        ("ssh: Could not resolve hostname b: Name or service not known", "the name of machine b is not known"),
        ("sudo: a password is required", "become root without a password; .*NOPASSWD"),
        ("env: 'sudo': No such file or directory", r"has no sudo; log in as root \(root@host\)"),
        ("env: ‘/x/python’: No such file or directory", "the Python of Railyard is not on machine b .* the same place"),
        ("/x/python: No module named railyard", "Railyard is not complete on machine b"),
        ("mktemp: failed to create directory via template: No space left", "no room for a private folder"),
    ],
)
def test_what_ssh_says_becomes_a_sentence_that_names_the_machine(line: str, expected: str) -> None:
    said = cause("b", ["Some banner", line])
    assert said is not None
    assert "machine b" in said
    assert re.search(expected, said), said


def test_what_is_not_known_has_no_sentence() -> None:
    assert cause("b", ["something else", ""]) is None


def test_a_local_process_is_served_like_a_remote_one() -> None:
    with RemoteProcess("local", SERVICE) as process:
        assert process.connection.call("echo", value=[1, "a"]) == [1, "a"]
        assert process.machine == "local"
        assert stat.S_IMODE(process.folder.stat().st_mode) == 0o700
        with pytest.raises(ConfigError, match=r"on machine local: a\.b: is wrong") as caught:
            process.connection.call("refuse", key="a.b")
        assert caught.value.key == "a.b"
    assert not process.folder.exists()
    process.close()


def test_local_sockets_are_forwarded_by_a_link() -> None:
    with RemoteProcess("local", SERVICE) as process, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(process.folder / "here"))
        listener.listen()
        process.forward(process.remote_folder / "there", process.folder / "here")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(process.remote_folder / "there"))
        with pytest.raises(MachineError, match="File exists"):
            process.forward(process.remote_folder / "there", process.folder / "here")


def test_the_end_of_a_process_is_told_with_the_last_line_that_it_said() -> None:
    with RemoteProcess("local", SERVICE) as process, pytest.raises(MachineError) as caught:
        process.connection.call("fail")
    assert str(caught.value) == "the connection to machine local has ended; the last that it said: about to fail"


def test_a_process_that_does_not_end_is_ended() -> None:
    process = RemoteProcess("local", SERVICE).start()
    pid = process.connection.call("pid")
    process.connection.tell("wait", seconds=60.0)
    began = time.monotonic()
    process._patience_s = 0.1
    process.close()
    assert time.monotonic() - began < 5.0
    assert not Path(f"/proc/{pid}").exists()


def test_a_module_that_is_not_there_is_told_and_nothing_is_left() -> None:
    before = set(Path("/tmp").glob("railyard-ssh-*"))
    with pytest.raises(MachineError, match=r"machine local has ended; the last that it said: .*No module named"):
        RemoteProcess("local", "cluster.no_such_module").start()
    assert set(Path("/tmp").glob("railyard-ssh-*")) <= before


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railyard.process.child.__version__", "0.0.1")
    with pytest.raises(
        MachineError,
        match=rf"machine local has version {__version__} of Railyard and this one 0\.0\.1; inst",
    ):
        RemoteProcess("local", SERVICE).start()


def test_a_configuration_file_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("relative", "/nonexistent/config", "/"):
        monkeypatch.setenv("RAILYARD_SSH_CONFIG", path)
        with pytest.raises(ConfigError, match="RAILYARD_SSH_CONFIG: names no file; give the absolute path"):
            RemoteProcess("b", SERVICE).start()
