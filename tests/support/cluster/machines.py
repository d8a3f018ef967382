"""Machines played by namespaces, for tests of one fabric over several machines; needs root and an sshd.

    with Machines(2, Underlay(delay_ms=1.0)) as machines:
        machines.head.run(["ssh", "-F", str(SSH_CONFIG), "b", "hostname"]).stdout      # "b\\n"
        machines["b"].die()

Each machine has namespaces of its own for its network, mounts, processes, host name and time: /run and /tmp are empty
and its own, its processes see no others, its monotonic clock is ahead of the head's by another offset. They share the
rest of the file system, the processors and the accounts. Its sshd lets root in by the key that the head has.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from checkout import ROOT
from cluster.machine_process import BED
from cluster.underlay import Underlay, Wires, batch

from railyard.process.start import MARK_VARIABLE
from railyard.tools import safe_path

NO_SSHD = "no sshd: install openssh-server, or let scripts/test.sh unpack it in /var/lib/railyard/sshd"
SSH_CONFIG = BED / "ssh_config"
"""On the head: names all machines (``head``, ``a``, ``b``, ...) and the key for them; ~/.ssh is not read with it."""
CLOCKS_S = (0.0, 1000.0, 2500.25, 4000.125)
"""By how much the monotonic clock is ahead of the head's, on the first machine, the second, and so on in turn."""
_UNPACKED = Path("/var/lib/railyard/sshd")
_MACHINE = Path(__file__).with_name("machine_process.py")
_END_S = 5.0
_SSHD_CONFIG = f"""\
HostKey {BED}/host_key
AuthorizedKeysFile {BED}/authorized_keys
PidFile {BED}/sshd.pid
ListenAddress 0.0.0.0
AuthenticationMethods publickey
PermitRootLogin prohibit-password
PermitUserRC no
UsePAM no
UseDNS no
MaxStartups 100
MaxSessions 100
"""
_SSH_CONFIG = f"""\
Host *
  User root
  IdentityFile {BED}/user_key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {BED}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 10
  LogLevel ERROR
"""


def sshd() -> Path | None:
    """The installed sshd, else the one that scripts/test.sh has unpacked; None without either."""
    found = shutil.which("sshd", path=f"{safe_path()}:/usr/local/sbin:/usr/sbin") or _UNPACKED / "usr/sbin/sshd"
    return Path(found) if Path(found).exists() else None


def _libraries(server: Path) -> str:
    """Folders of the shared libraries that were unpacked with an sshd."""
    if _UNPACKED not in server.parents:
        return ""
    return os.pathsep.join(str(path) for pattern in ("lib/*-gnu", "usr/lib/*-gnu") for path in _UNPACKED.glob(pattern))


def _programs(server: Path) -> str:
    """Settings of an sshd that was unpacked: where the programs are that it consists of, from OpenSSH 9.8 on."""
    folder = _UNPACKED / "usr/lib/openssh"
    parts = {"SshdSessionPath": folder / "sshd-session", "SshdAuthPath": folder / "sshd-auth"}
    unpacked = _UNPACKED in server.parents
    return "".join(f"{name} {path}\n" for name, path in parts.items() if unpacked and path.exists())


class Machine:
    """A running machine; ``pid`` is the id of its first process, ``ip`` its address on the underlay."""

    def __init__(self, name: str, ip: str, settings: Mapping[str, Any]) -> None:
        self.name, self.ip = name, ip
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_MACHINE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True, cwd="/",
        )  # fmt: skip
        self._started: list[subprocess.Popen[Any]] = []
        self.wires: Wires | None = None
        assert self._process.stdin
        print(json.dumps(settings), file=self._process.stdin, flush=True)

    def wait_ready(self) -> None:
        """Return once the sshd listens; ``AssertionError`` if it does not."""
        assert self._process.stdout
        said = [self._process.stdout.readline().strip(), self._process.stdout.readline().strip()]
        self.pid = int(next((line for line in said if line.isdigit()), 0))
        assert self.pid and "ready" in said, f"machine {self.name} does not start: {said}"
        self._first = os.pidfd_open(self.pid)

    @property
    def root(self) -> Path:
        """The machine's root directory as seen from the test, with its own /run and /tmp."""
        return Path(f"/proc/{self.pid}/root")

    def command(self, arguments: Sequence[str | Path], cwd: Path = ROOT) -> list[str]:
        """The command line that runs another on the machine, with standard streams and variables of its caller."""
        inside = ["--net", "--mount", "--pid", "--uts", "--time"]
        return ["nsenter", f"--target={self.pid}", *inside, "env", f"--chdir={cwd}", *map(str, arguments)]

    def run(
        self, arguments: Sequence[str | Path], typed: str = "", timeout_s: float = 60.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the machine to its end, with ``typed`` as its input; its output is text."""
        process = self.start(arguments, stdin=subprocess.PIPE, **options)
        try:
            stdout, stderr = process.communicate(typed, timeout_s)
        except BaseException:
            self.kill(process)
            raise
        self._started.remove(process)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def start(self, arguments: Sequence[str | Path], cwd: Path = ROOT, **options: Any) -> subprocess.Popen[Any]:
        """Start a program on the machine, with pipes for its output; it ends with the machine."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {key: value for key, value in os.environ.items() if key != MARK_VARIABLE}
        self._started.append(subprocess.Popen(self.command(arguments, cwd), env=environment, **(given | options)))
        return self._started[-1]

    @staticmethod
    def pid_of(process: subprocess.Popen[Any]) -> int:
        """The id of what ``start`` has started, as seen from the test: the child of the nsenter that waits for it.

        ``IndexError`` if it has ended.
        """
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not (found := children.read_text().split()) and process.poll() is None:
            time.sleep(0.001)
        return int(found[0])

    def kill(self, process: subprocess.Popen[Any], number: int = signal.SIGKILL) -> None:
        """Send a signal to what ``start`` has started, if it still runs."""
        with suppress(OSError, IndexError):
            os.kill(self.pid_of(process), number)

    def unplug(self) -> None:
        """Pull the cable: nothing reaches the machine or leaves it, and its interface loses the carrier."""
        assert self.wires
        self.wires.unplug(self.name)

    def die(self) -> None:
        """End the machine at once and wait until all of its processes are gone.

        As when its power fails: others hear nothing more of it.
        """
        self.unplug()
        self.end()

    def end(self) -> None:
        """Kill the first process, and with it all, and wait for that; does nothing a second time."""
        if self._process.poll() is None and hasattr(self, "_first"):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            assert select.select([self._first], [], [], _END_S)[0], f"machine {self.name} does not end"
            os.close(self._first)
        self._process.kill()
        for process in (self._process, *self._started):
            process.wait()  # each nsenter ends with what it has started
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


class Machines:
    """``count`` machines (``a``, ``b``, ...) and a head that is none of them, on an underlay, as a context manager.

    ``shared`` are folders below /tmp or /run that all machines and the test have in common, as pytest's ``tmp_path``.
    """

    def __init__(self, count: int, underlay: Underlay | None = None, shared: Collection[Path] = ()) -> None:
        self._names = ["head", *(chr(ord("a") + number) for number in range(count))]
        self._underlay = underlay or Underlay()
        self._shared = shared
        self._machines: dict[str, Machine] = {}

    @property
    def head(self) -> Machine:
        """The machine on which a person types; its clock is the test's."""
        return self._machines["head"]

    @property
    def names(self) -> list[str]:
        """The names of all machines but the head."""
        return self._names[1:]

    def __getitem__(self, name: str) -> Machine:
        return self._machines[name]

    def __iter__(self) -> Iterator[Machine]:
        """All machines, the head first."""
        return iter(self._machines.values())

    def __enter__(self) -> Machines:
        with ExitStack() as stack:
            settings = self._settings()
            for number, name in enumerate(self._names):
                clock_s = CLOCKS_S[(number - 1) % len(CLOCKS_S)] if number else 0.0
                own = settings | {"name": name, "clock_s": clock_s, "files": settings["files"][name == "head"]}
                machine = self._machines[name] = Machine(name, self._ip(number), own)
                stack.callback(machine.end)
            for machine in self:
                machine.wait_ready()
            wires = Wires(self._underlay, {name: machine.pid for name, machine in self._machines.items()}, stack)
            for machine in self:
                machine.wires = wires
                self._connect(machine)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @staticmethod
    def _ip(number: int) -> str:
        return f"10.77.0.{number + 1}"

    def _settings(self) -> dict[str, Any]:
        """What all machines are told; ``files`` has those of machines and those of the head."""
        server = sshd()
        assert server, NO_SSHD
        addresses = {name: self._ip(number) for number, name in enumerate(self._names)}
        with tempfile.TemporaryDirectory() as folder:
            keys: dict[str, str] = {}
            for name in ("host_key", "user_key"):
                path = Path(folder) / name
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
                keys |= {name: path.read_text(), f"{name}.pub": path.with_suffix(".pub").read_text()}
        places = "".join(f"Host {name}\n  HostName {ip}\n" for name, ip in addresses.items())
        machine = {
            "sshd_config": _SSHD_CONFIG + _programs(server),
            "host_key": keys["host_key"],
            "authorized_keys": keys["user_key.pub"],
        }
        head = machine | {
            "ssh_config": places + _SSH_CONFIG,
            "user_key": keys["user_key"],
            "known_hosts": "* " + keys["host_key.pub"],
        }
        hidden = (Path("/tmp"), Path("/run"))
        kept = [path.resolve() for path in (ROOT, Path(sys.prefix), *self._shared)]
        return {
            "sshd": str(server),
            "libraries": _libraries(server),
            "hosts": "127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in addresses.items()),
            "kept": sorted({str(path) for path in kept if any(folder in path.parents for folder in hidden)}),
            "files": (machine, head),
        }

    def _connect(self, machine: Machine) -> None:
        """Set the machine's interface up, with its address."""
        single = " gso_max_segs 1" if self._underlay.delay_ms else ""
        enter = ["nsenter", f"--target={machine.pid}", "--net"]
        batch([f"address add {machine.ip}/24 dev eth0", f"link set eth0 up{single}"], *enter)
