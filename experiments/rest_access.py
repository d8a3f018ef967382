"""Who may use the REST interface of a run: whoever can read the file with its token."""

from __future__ import annotations

import errno
import os
import shlex
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from controllers.northbound.rest_address import reserve, written
from controllers.northbound.token import MOST_TOKEN, is_token, new_token
from experiments.settings import PacketSettings
from railyard.errors import ConfigError
from railyard.ownership import invoker, naming, open_new, reached

TOKEN_FILE = "rest-token"
_KEY = "rest_token_file"
_OTHERS = 0o077


@dataclass(frozen=True)
class RestAccess:
    """The REST interface of a run: its address, the socket that listens there, its token, and the file that holds it.

    Without a socket (None) the controller makes one.
    """

    address: str
    token: str = field(repr=False)
    file: Path
    held: socket.socket | None = field(default=None, repr=False, compare=False)

    def line(self, address: str) -> str:
        """The line that tells where the REST interface is (``address``) and how to call it.

        The token stays off the command line of curl, which every user of the machine can read.
        """
        token = f"sed 's/^/Authorization: Bearer /' {shlex.quote(str(self.file))}"
        call = f"curl -sS -H @- {shlex.quote(f'http://{address}/switches')}"
        return f"REST on http://{address} with the token in {self.file}:\n  {token} |\n    {call}"


@contextmanager
def reserved_address(settings: PacketSettings) -> Iterator[socket.socket | None]:
    """Listen on the address of the REST interface of a run for all its fabrics; None without a REST interface.

    Refuses an address and a token file that cannot be used, before anything is up.
    """
    if settings.rest_token_file is not None:
        if settings.rest is None:
            raise ConfigError(
                "is used by the REST interface only; give its address too, as --rest or key rest", key=_KEY
            )
        read_token(Path(settings.rest_token_file))
    with nullcontext() if settings.rest is None else reserve(settings.rest) as held:
        yield held


def rest_access(settings: PacketSettings, held: socket.socket | None, folder: Path) -> RestAccess | None:
    """The access to the REST interface on socket ``held``, None without one; a new token is written into ``folder``."""
    if held is None:
        return None
    address = written(*held.getsockname()[:2])
    if settings.rest_token_file is not None:
        file = Path(settings.rest_token_file).absolute()
        return RestAccess(address, read_token(file), file, held)
    file = folder.absolute() / TOKEN_FILE
    return RestAccess(address, make_token(file), file, held)


def make_token(file: Path) -> str:
    """A new token, written to the new ``file``, which only its owner can open: the caller of sudo, or this user."""
    token = new_token()
    with naming(file), reached(file.parent) as folder:
        fd = open_new(file.name, folder, 0o600)
    with open(fd, "w", encoding="ascii") as out:
        out.write(token + "\n")
    return token


def read_token(file: Path) -> str:
    """The token in ``file``; ``ConfigError`` unless only its owner, who is root or the caller, can open it."""
    name = str(file)
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(f"{name} is a link; name the file itself", key=_KEY) from None
        raise ConfigError(f"{name} cannot be read ({error.strerror}); name a file with a token", key=_KEY) from None
    try:
        _check_private(os.fstat(fd), name)
        token = os.read(fd, MOST_TOKEN + 2).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
    if not token:
        raise ConfigError(f"{name} is empty; write a token into it", key=_KEY)
    if not is_token(token):
        raise ConfigError(
            f"{name} must hold one line of at most {MOST_TOKEN} printable ASCII characters without spaces", key=_KEY
        )
    return token


def _check_private(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{name} is not a file; name a file with a token", key=_KEY)
    owners = {0, os.geteuid(), *(invoker() or ())[:1]}
    if status.st_uid not in owners:
        raise ConfigError(f"{name} belongs to user {status.st_uid}; it must belong to you or to root", key=_KEY)
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(f"{name} is open to other users (mode {mode:04o}); run chmod 600 {name}", key=_KEY)
