"""A process of Railyard on another machine, over one OpenSSH connection, or on this one without it.

The process runs as root there: as the user who logs in if that is root, by ``sudo -n`` otherwise. It has a private
folder (mode 0700) that belongs to the user who logs in and is removed when the process has ended. Its standard input
and output are the ``Connection``; at the end of its input it ends.

Under sudo, ``ssh`` runs as the user who called sudo, so that the keys, the known hosts and the configuration of that
user hold. ``RAILYARD_SSH_CONFIG`` names another configuration file for ``ssh``, by its absolute path.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from railyard import __version__
from railyard.checkout import ROOT
from railyard.child import end_child, marked_environment, start_python
from railyard.errors import ConfigError, MachineError, from_os_error, shortened
from railyard.ownership import hand_over, invoker
from railyard.remote.connection import FOLDER_VARIABLE, SSHD_VARIABLE, Connection
from railyard.remote.ssh_faults import cause
from railyard.tools import how_to_install, safe_path

CONFIG_VARIABLE = "RAILYARD_SSH_CONFIG"
"""Environment variable that names a configuration file for ``ssh`` in place of the user's and the system's."""
HERE = ("local", "localhost")
"""Names of this machine, which is reached without ``ssh``."""
READY_S = 30.0
_CONTROL = "c"
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
    '[ "$(id -u)" = 0 ] || set -- env LC_ALL=C.UTF-8 sudo -n -- "$@"; "$@"; s=$?; rm -rf -- "$d"; exit $s'
)
"""What the shell of the machine runs, with the command after it."""
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
_R = TypeVar("_R", bound="RemoteProcess")


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

    def command(self, module: str, *arguments: str) -> list[str]:
        return ["env", f"PYTHONPATH={self.root}", "PYTHONSAFEPATH=1", self.python, "-m", module, *arguments]


class RemoteProcess:
    """A process of Railyard on a machine, with a connection to it; made by ``start``, or ``begin`` and ``ready``.

    Its end is ``close``, or the end of a ``with``. Nothing of it is left on either machine.
    """

    def __init__(self, machine: str, process: subprocess.Popen[bytes], folder: Path, ssh: list[str] | None) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._machine, self._process, self._ssh = machine, process, ssh
        self._folder = folder
        self._remote_folder: Path | None = None
        self._said = _Lines(process.stderr)
        streams = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdin.close()
        process.stdout.close()
        self.connection = Connection(*streams, machine, last_words=self._said.last)

    @classmethod
    def start(cls: type[_R], machine: str, module: str, *arguments: str, place: Place | None = None) -> _R:
        """Run ``module`` on ``machine`` (``[user@]host[:port]``, or ``local``), and wait until it has said hello.

        The module must serve its standard streams (``Connection.of_standard_streams``, ``Service``). ``arguments`` are
        visible to every user there. ``MachineError`` if that fails, with the cause and what would work.
        """
        return cls.begin(machine, module, *arguments, place=place).ready()

    @classmethod
    def begin(cls: type[_R], machine: str, module: str, *arguments: str, place: Place | None = None) -> _R:
        """Start what ``start`` does without a wait, so that several machines start at once; ``ready`` must follow."""
        address = None if machine in HERE else Address.of(machine)
        folder = Path(tempfile.mkdtemp(prefix="railyard-ssh-", dir="/tmp"))  # short: a socket's name has 107 bytes
        try:
            hand_over(folder)
            if address is None:
                process = start_python(
                    module, *arguments, environment={FOLDER_VARIABLE: str(folder)}, bufsize=0, **_pipes()
                )
                return cls(machine, process, folder, None)
            command = ["sh", "-c", _SCRIPT, "railyard", *(place or Place()).command(module, *arguments)]
            process = _start_ssh(folder, [*_master(folder), *address.words, shlex.join(["exec", *command])])
            return cls(machine, process, folder, ["-S", str(folder / _CONTROL), *address.words])
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def ready(self: _R, timeout_s: float = READY_S) -> _R:
        """Wait until the process has said hello; it is ended if it does not, or is of another version."""
        try:
            try:
                hello = self.connection.next_message(timeout_s)
            except MachineError as error:
                raise self._unreachable(error) from None
            if hello is None:
                raise MachineError(f"machine {self._machine} was not ready within {timeout_s:g} s; try ssh by hand")
            version = hello.get("version")
            if hello["op"] != "hello" or version != __version__:
                raise MachineError(
                    f"machine {self._machine} has version {str(version)[:40]} of Railyard and this one {__version__}; "
                    f"install the same version on both"
                )
            self._remote_folder = Path(str(hello.get("folder")))
            return self
        except BaseException:
            self.close(0.0)
            raise

    def _unreachable(self, error: MachineError) -> MachineError:
        """The error of a process that has ended before it was ready."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_S)
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
        if self._remote_folder is None:
            raise MachineError(f"machine {self._machine} is not ready")
        return self._remote_folder

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

    def close(self, patience_s: float = 5.0) -> None:
        """End the process by the end of its input, wait ``patience_s`` seconds for it, then end ``ssh``."""
        if self.connection.closed:
            return
        self.connection.close(patience_s)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_S)
        self._process.terminate()  # ssh stays as long as connections are open that it forwards
        end_child(self._process, _EXIT_S if self._ssh else 0.0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self: _R) -> _R:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def _as_caller() -> dict[str, Any]:
    """Arguments of ``subprocess`` for a program of the user who called sudo, in ``/``; without sudo, of this user."""
    user = pwd.getpwuid(invoker_id) if (invoker_id := (invoker() or (0, 0))[0]) else None
    if user is None:
        return {"cwd": "/", "env": marked_environment(LC_ALL="C.UTF-8"), "start_new_session": True}
    own = marked_environment(LC_ALL="C.UTF-8", HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}
    return {"cwd": "/", "env": own, "start_new_session": True, **who}


def _ssh() -> str:
    program = shutil.which("ssh", path=safe_path())
    if program is None:
        raise MachineError(f"ssh is missing; {how_to_install('openssh-client')}")
    return program


def _pipes() -> dict[str, Any]:
    return dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)


def _start_ssh(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", _KEEPER, "railyard", str(folder), _ssh(), *arguments]
    return subprocess.Popen(command, bufsize=0, **_pipes(), **_as_caller())


def _control(arguments: list[str]) -> str:
    """Ask the ``ssh`` that holds a connection for something; what it says if it refuses, or nothing.

    Without any configuration, since forwardings of the user's would be asked for as well.
    """
    command = [_ssh(), "-F", "none", *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CONTROL_S, check=False, **_as_caller()
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_CONTROL_S:g} s"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return shortened(lines[-1].strip()) if lines else f"exit status {done.returncode}"
