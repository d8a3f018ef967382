"""A process of Railyard on another machine, over one OpenSSH connection, or on this one without it.

The process runs as root there, by ``sudo -n`` if need be, or as the user who logs in. It has a private
folder (mode 0700) that belongs to the user who logs in and is removed when the process has ended. Its standard input
and output are the ``Connection``; at the end of its input it ends.

Under sudo, ``ssh`` runs as the user who called sudo, so that the keys, the known hosts and the configuration of that
user hold. ``RAILYARD_SSH_CONFIG`` names another configuration file for ``ssh``, by its absolute path.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from railyard.checkout import ROOT
from railyard.errors import ConfigError, MachineError, from_os_error, shortened
from railyard.ownership import hand_over
from railyard.process.child import Child
from railyard.process.connection import FOLDER_VARIABLE, SSHD_VARIABLE, Connection
from railyard.process.start import (
    ENTRY,
    as_caller,
    end_child,
    run_program,
    start_program,
    start_python,
)
from railyard.remote.ssh_faults import cause
from railyard.tools import how_to_install, safe_path

CONFIG_VARIABLE = "RAILYARD_SSH_CONFIG"
"""Environment variable that names a configuration file for ``ssh`` in place of the user's and the system's."""
HERE = ("local", "localhost")
"""Names of this machine, which is reached without ``ssh``."""
_PATIENCE_S = 5.0
_CONTROL = "c"
_LOCALE = "C.UTF-8"
_CONTROL_S = 10.0
_EXIT_S = 2.0
_LAST_S = 0.2
"""Time of a process to end after its streams have ended."""
_SAID_S = 0.3
_KEPT_LINES = 100
_LINE_BYTES = 4096
_NAME = re.compile(
    r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"  # user
    r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])"  # host
    r"(?::([0-9]{1,5}))?"  # port
)
_SCRIPT = (
    "umask 077; d=$(mktemp -d /tmp/railyard-XXXXXXXXXX) || exit 74; trap : HUP INT TERM; cd /; "
    f'set -- env "{FOLDER_VARIABLE}=$d" "{SSHD_VARIABLE}=$PPID" "SSH_CONNECTION=$SSH_CONNECTION" "$@"; '
    '{root}"$@"; s=$?; rm -rf -- "$d"; exit $s'
)
"""What the shell of the machine runs, with the command after it."""
_BECOME_ROOT = '[ "$(id -u)" = 0 ] || set -- env LC_ALL=C.UTF-8 sudo -n -- "$@"; '
_KEEPER = (
    'd=$1; shift; trap "kill \\$p 2>/dev/null" HUP INT TERM; exec 3<&0; "$@" <&3 3<&- & p=$!; '
    'exec 0</dev/null 1>&2 3<&-; while wait $p; s=$?; kill -0 $p 2>/dev/null; do :; done; rm -rf -- "$d"; exit $s'
)
"""What runs ``ssh`` here, and removes its folder ($1) after it, also if this process was killed."""
_OPTIONS = {
    "BatchMode": "yes",  # never a question: nobody is there to answer it
    "ClearAllForwardings": "yes",  # those of the user's configuration, which another connection may hold already
    "ConnectTimeout": "10",
    "ControlMaster": "yes",
    "ControlPersist": "no",
    "ExitOnForwardFailure": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "LogLevel": "INFO",  # which tells of a machine that does not answer any more
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "ServerAliveCountMax": "3",
    "ServerAliveInterval": "2",
}


@dataclass(frozen=True)
class Address:
    """Where ``ssh`` finds a machine: a name, address or alias of ``ssh``'s configuration, and what it leaves open."""

    host: str
    user: str | None = None
    port: int | None = None

    @staticmethod
    def of(machine: str, key: str | None = None) -> Address:
        """The address in ``[user@]host[:port]``; ``ConfigError`` (with ``key``) for anything else."""
        match = _NAME.fullmatch(machine)
        if match is None or not 0 < int(match[3] or 22) < 1 << 16:
            raise ConfigError(f"{machine[:100]!a} is no machine; write [user@]host[:port], or local", key=key)
        return Address(match[2].strip("[]"), match[1], int(match[3]) if match[3] else None)

    @property
    def words(self) -> list[str]:
        user = ["-l", self.user] if self.user else []
        port = ["-p", str(self.port)] if self.port else []
        return [*user, *port, "--", self.host]


@dataclass(frozen=True)
class Place:
    """Where Railyard is on a machine: its Python, and the folder with its packages. By default as on this machine."""

    python: str = sys.executable
    root: str = str(ROOT)

    def command(self, module: str) -> list[str]:
        return ["env", f"PYTHONPATH={self.root}", "PYTHONSAFEPATH=1", self.python, "-m", ENTRY, module]


class RemoteProcess(Child):
    """A process of Railyard on a machine (``[user@]host[:port]``, or ``local``), which runs ``module``.

    ``place`` is where Railyard is there (default: as here), ``what`` names the process in errors, and with ``root`` it
    runs as root. Nothing of it is left on either machine after its end. ``MachineError`` if it does not start, with the
    cause and what would work.
    """

    def __init__(
        self,
        machine: str,
        module: str,
        settings: Mapping[str, Any] | None = None,
        *,
        place: Place | None = None,
        what: str | None = None,
        root: bool = True,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        address = None if machine in HERE else Address.of(machine)
        super().__init__(module, settings or {}, (), what or f"machine {machine}", patience_s=patience_s)
        self._machine, self._address, self._place = machine, address, place or Place()
        self._script = _SCRIPT.replace("{root}", _BECOME_ROOT if root else "")
        self._folder = Path()
        self._when_late = "try ssh by hand"
        self._ssh: list[str] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._folder = Path(tempfile.mkdtemp(prefix="railyard-ssh-", dir="/tmp"))  # short: a socket has 107 bytes
        try:
            hand_over(self._folder)
            if self._address is None:
                environment = {FOLDER_VARIABLE: str(self._folder)}
                return start_python(self._module, environment=environment, bufsize=0, **_pipes())
            words = self._address.words
            self._ssh = ["-S", str(self._folder / _CONTROL), *words]
            there = self._place.command(self._module)
            command = ["exec", "sh", "-c", self._script, "railyard", *there]
            return _start_ssh(self._folder, [*_master(self._folder), *words, shlex.join(command)])
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _connected(self, source: int, sink: int) -> Connection:
        assert self._process is not None and self._process.stderr is not None
        self._said = _Lines(self._process.stderr)
        return Connection(source, sink, self._what, raised=f"on {self._what}: ", last_words=self._said.last)

    def _not_started(self, error: MachineError) -> MachineError:
        """The error of a process that has ended before it was ready."""
        with suppress(subprocess.TimeoutExpired):
            self._running().wait(_EXIT_S)
        if self._ssh is None:
            return error
        return MachineError(cause(self._machine, self._said.all()) or str(error))

    @property
    def machine(self) -> str:
        return self._machine

    @property
    def folder(self) -> Path:
        """A private folder on this machine, for local ends of ``forward``: whoever runs ``ssh`` can reach them there.

        A socket in it must belong to its owner (``ownership.invoker``), or be open to him.
        """
        return self._folder

    @property
    def remote_folder(self) -> Path:
        """The private folder of the process on its machine, for remote ends of ``forward``."""
        if not self.told:
            raise MachineError(f"machine {self._machine} is not ready")
        return Path(str(self.told["folder"]))

    def forward(self, remote_path: str | Path, local_path: str | Path) -> None:
        """Let connections to the Unix socket ``remote_path`` on the machine come out at ``local_path`` here.

        ``sshd`` makes the remote socket as the user who logs in, with mode 0600 (its ``StreamLocalBindMask``), and does
        not remove it at the end, so it belongs in ``remote_folder``. It listens when this returns. ``ssh`` connects to
        the local one for each connection that comes, as the owner of ``folder``. ``MachineError`` if the machine
        refuses.
        """
        if self._ssh is None:
            try:
                os.symlink(local_path, remote_path)
            except OSError as error:
                raise from_os_error(error) from error
            return
        for path in (str(remote_path), str(local_path)):
            if not re.fullmatch(r"/[A-Za-z0-9_./-]{1,100}", path):
                raise MachineError(f"{path!a} cannot be forwarded; a socket has a short absolute path of letters")
        refused = _control(["-O", "forward", "-R", f"{remote_path}:{local_path}", *self._ssh])
        if refused:
            raise MachineError(
                f"machine {self._machine} refuses to forward the socket {remote_path} ({refused}); its sshd must "
                f"allow it (AllowStreamLocalForwarding yes), and the folder must belong to the user who logs in"
            )

    def _end(self, process: subprocess.Popen[bytes], connection: Connection) -> None:
        """End the process by the end of its input, wait for it, then end ``ssh``."""
        connection.close(self._patience_s)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_S)
        process.terminate()  # ssh stays as long as connections are open that it forwards
        end_child(process, _EXIT_S if self._ssh else 0.0)
        shutil.rmtree(self._folder, ignore_errors=True)


class _Lines:
    """The last lines that a process prints on its standard error, read by a thread until all who have it are gone."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._thread = threading.Thread(target=self._collect, name="remote-errors", daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        with self._stream:
            while line := self._stream.readline(_LINE_BYTES):
                if text := line.decode(errors="replace").strip():
                    self._lines.append(text)

    def all(self) -> list[str]:
        """The lines, the last one last; waits a moment for those of a process that has just ended."""
        self._thread.join(_SAID_S)
        return [*self._lines]

    def last(self) -> str | None:
        return next(reversed(self.all()), None)


def _master(folder: Path) -> list[str]:
    """The command line, up to the machine, of the ``ssh`` that holds the connection; its control socket in ``folder``.

    ``ConfigError`` if the configuration file that the environment names is none.
    """
    config = os.environ.get(CONFIG_VARIABLE)
    if config is not None and not (os.path.isabs(config) and os.path.isfile(config)):
        raise ConfigError("names no file; give the absolute path of a configuration file of ssh", key=CONFIG_VARIABLE)
    options = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
    return ["-T", *(["-F", config] if config else []), *options, "-S", str(folder / _CONTROL)]


def _ssh() -> str:
    program = shutil.which("ssh", path=safe_path())
    if program is None:
        raise MachineError(f"ssh is missing; {how_to_install('openssh-client')}")
    return program


def _pipes() -> dict[str, Any]:
    return dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)


def _start_ssh(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", _KEEPER, "railyard", str(folder), _ssh(), *arguments]
    return start_program(command, bufsize=0, **_pipes(), **as_caller(LC_ALL=_LOCALE))


def _control(arguments: list[str]) -> str:
    """Ask the ``ssh`` that holds a connection for something; what it says if it refuses, or nothing.

    Without any configuration, since forwardings of the user's would be asked for as well.
    """
    command = [_ssh(), "-F", "none", *arguments]
    done = run_program(command, _CONTROL_S, **as_caller(LC_ALL=_LOCALE))
    return shortened(done.last_line) if done.status else ""
