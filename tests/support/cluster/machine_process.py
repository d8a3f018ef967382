"""The processes of one machine of ``cluster.machines``: namespaces of its own, its first process, its sshd.

Run as a script with one line of JSON on standard input. It prints the process id of the machine's first process (as
seen from outside) once the machine's sshd listens. The machine ends with that process, which ends with its standard
input: when the test that holds it ends, however it does.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

_NEW_TIME, _NEW_MOUNT, _NEW_UTS, _NEW_PID, _NEW_NET = 0x80, 0x20000, 0x4000000, 0x20000000, 0x40000000
_PRIVATE = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC of sys/mount.h
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_START_S = 10.0
BED = Path("/run/bed")
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        sys.exit(f"machine: {what}: {os.strerror(ctypes.get_errno())}")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _own_folders(kept: list[str]) -> None:
    """Mount what belongs to the machine alone: /proc, /sys, and an empty /run and /tmp but for the folders ``kept``."""
    _check(_libc.mount(None, b"/", None, _PRIVATE, None), "keeping mounts to itself")
    opened = {path: os.open(path, os.O_PATH) for path in kept}
    _mount("-t", "proc", "proc", "/proc")
    _mount("-t", "sysfs", "sysfs", "/sys")
    _mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run")
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    for path, fd in opened.items():
        os.makedirs(path, exist_ok=True)
        # by the system call: mount(8) would follow the link to a path that the new /tmp hides
        _check(_libc.mount(f"/proc/self/fd/{fd}".encode(), path.encode(), None, 1 << 12, None), f"keeping {path}")
        os.close(fd)


def _accounts() -> None:
    """Let sshd find its own user, where the package is only unpacked, and root's account open, in copies of /etc."""
    people, secrets = Path("/etc/passwd").read_text(), Path("/etc/shadow").read_text()
    if "\nsshd:" not in people:
        _cover("/etc/passwd", people + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n", 0o644)
    lines = [line.split(":") for line in secrets.splitlines()]
    opened = [":".join([name, "*" if name == "root" else secret, *rest]) for name, secret, *rest in lines]
    _cover("/etc/shadow", "\n".join(opened) + "\n", 0o600)


def _cover(path: str, text: str, mode: int) -> None:
    """Put ``text`` in place of a file of /etc, in this machine only."""
    covering = BED / Path(path).name
    covering.write_text(text)
    covering.chmod(mode)
    _mount("--bind", str(covering), path)


def _first_process(settings: dict[str, Any]) -> None:
    """Set the machine up, start its sshd, and reap what ends."""
    socket.sethostname(settings["name"])
    _own_folders(settings["kept"])
    os.umask(0o077)
    for folder in (BED, Path("/run/sshd")):
        folder.mkdir(mode=0o755)
    for name, text in settings["files"].items():
        (BED / name).write_text(text)
    _cover("/etc/hosts", settings["hosts"], 0o644)
    _accounts()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    libraries = {"LD_LIBRARY_PATH": settings["libraries"]} if settings["libraries"] else {}
    command = [settings["sshd"], "-D", "-f", str(BED / "sshd_config"), "-E", str(BED / "sshd.log")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **libraries}, cwd="/")
    end = time.monotonic() + _START_S
    while not (BED / "sshd.pid").exists():
        if time.monotonic() > end or process.poll() is not None:
            sys.exit(f"machine: sshd does not start: {(BED / 'sshd.log').read_text()}")
        time.sleep(0.002)
    print("ready", flush=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.1)


def main() -> None:
    """Leave the namespaces of the test, fork the machine's first process, say its id, and wait for its end."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL), "ending with the test")
    settings = json.loads(sys.stdin.readline())
    flags = _NEW_TIME | _NEW_MOUNT | _NEW_UTS | _NEW_PID | _NEW_NET
    _check(_libc.unshare(flags), "making the namespaces of a machine")
    seconds, fraction = divmod(round(settings["clock_s"] * 1e9), 1_000_000_000)
    Path("/proc/self/timens_offsets").write_text(f"monotonic {seconds} {fraction}\n")
    pid = os.fork()
    if not pid:
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
        try:
            _first_process(settings)
        except BaseException as error:
            print(f"machine: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    print(pid, flush=True)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
