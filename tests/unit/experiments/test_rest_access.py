"""The token of the REST interface: made anew for a run, or read from a file that only its owner can open."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controllers.northbound import http_server
from controllers.northbound.rest_address import written
from experiments.rest_access import TOKEN_FILE, RestAccess, read_token, reserved_address, rest_access
from experiments.settings import PacketSettings
from railyard.errors import ConfigError


def settings(rest: str | None = "127.0.0.1:0", file: Path | None = None) -> PacketSettings:
    return PacketSettings(rest=rest, rest_token_file=None if file is None else str(file))


ADDRESS = "127.0.0.1:8080"


def reserve(given: PacketSettings) -> None:
    with reserved_address(given):
        pass


@pytest.fixture
def held() -> Iterator[socket.socket]:
    with reserved_address(settings()) as found:
        assert found is not None
        yield found


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A file with a token that may be used."""
    made = tmp_path / "my token"
    made.write_text("s3cret\n")
    made.chmod(0o600)
    return made


def test_a_run_gets_a_random_token_in_a_file_of_its_own(tmp_path: Path, held: socket.socket) -> None:
    other = tmp_path / "other"
    other.mkdir()
    first, second = rest_access(settings(), held, tmp_path), rest_access(settings(), held, other)
    assert first is not None and second is not None and first.token != second.token
    assert len(first.token) == 43 and first.file == tmp_path / TOKEN_FILE
    assert stat.S_IMODE(first.file.stat().st_mode) == 0o600
    assert read_token(first.file) == first.token and first.token not in repr(first)
    assert rest_access(settings(None), None, tmp_path) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_the_file_belongs_to_the_caller_of_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: socket.socket
) -> None:
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "12346")
    made = rest_access(settings(), held, tmp_path)
    assert made is not None and read_token(made.file) == made.token
    assert (made.file.stat().st_uid, made.file.stat().st_gid) == (12345, 12346)
    monkeypatch.delenv("SUDO_UID")
    with pytest.raises(ConfigError, match=r"belongs to user 12345; it must belong to you or to root$"):
        read_token(made.file)


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path, held: socket.socket) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / TOKEN_FILE).symlink_to(target)
    with pytest.raises(FileExistsError):
        rest_access(settings(), held, tmp_path)
    assert target.read_text() == "precious"


def test_a_file_gives_a_fixed_token(token_file: Path, held: socket.socket) -> None:
    found = rest_access(settings(file=token_file), held, Path("/nowhere"))
    assert found == RestAccess(f"127.0.0.1:{held.getsockname()[1]}", "s3cret", token_file)
    assert found.held is held


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o620, 0o602, 0o610])
def test_a_file_that_others_may_open_is_refused(token_file: Path, mode: int) -> None:
    token_file.chmod(mode)
    with pytest.raises(
        ConfigError, match=rf"^rest_token_file: .* is open to other users \(mode {mode:04o}\); run chmod"
    ):
        reserve(settings(file=token_file))


def test_what_is_no_file_is_refused(token_file: Path, tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(token_file)
    os.mkfifo(pipe, 0o600)
    for path, reason in (
        (link, "is a link; name the file itself"),
        (pipe, "is not a file"),
        (tmp_path, "is not a file"),
        (tmp_path / "none", r"cannot be read \(No such file or directory\); name a file with a token"),
        (token_file / "in", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=reason):
            read_token(path)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", ""])
def test_all_fabrics_of_a_run_get_the_same_port_and_other_programs_never(host: str) -> None:
    """Each fabric has a controller of its own, which gets the socket; a connection between two waits for the second."""
    try:
        with reserved_address(settings(f"{host}:0")) as held:
            assert held is not None
            address = written(*held.getsockname()[:2])
            for _ in range(2):
                with pytest.raises(ConfigError, match=r"^rest: .* is in use by another program; give another port, or"):
                    reserve(settings(address))
                with socket.socket(held.family) as another:
                    another.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    with pytest.raises(OSError, match="Address already in use"):
                        another.bind(held.getsockname())
                with socket.create_connection(held.getsockname()[:2], 5) as early:
                    held.setblocking(False)  # as a server of green threads leaves it
                    server, hosts = http_server.listen(address, os.dup(held.fileno()))
                    assert server.address == address and hosts == {address.rpartition(":")[0], "localhost"}
                    call, caller = server.get_request()
                    assert caller == early.getsockname()
                    call.close()
                server.server_close()
    except ConfigError as error:
        assert host == "[::1]" and not has_ipv6(), error


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as tried:
        return tried.connect_ex(("::1", 9)) != errno.EADDRNOTAVAIL


def test_an_address_of_a_family_that_the_kernel_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr(socket, "socket", lacking)
    sentence = (
        r"^rest: \[::1\]:80 cannot be listened on \(Address family not supported by protocol\); give another address"
    )
    with pytest.raises(ConfigError, match=sentence):
        reserve(settings("[::1]:80"))


def test_the_line_of_a_run_is_a_command_that_works(token_file: Path) -> None:
    line = RestAccess(ADDRESS, "s3cret", token_file).line("127.0.0.1:9")
    assert line.startswith(f"REST on http://127.0.0.1:9 with the token in {token_file}:\n  sed ")
    assert RestAccess(ADDRESS, "s3cret", token_file).line("[::1]:9").endswith("'http://[::1]:9/switches'")
    command = line.partition("\n")[2].replace("curl -sS", "cat; echo")
    found = subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
    assert found.splitlines()[0] == "Authorization: Bearer s3cret" and "s3cret" not in command
