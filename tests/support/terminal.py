"""A terminal of 80 columns in which a test types what a document shows, in a folder of its own.

With ``apart`` (as root) its programs have a network, processes and /run/railyard of their own, so that ports, names of
labs and what is left behind are nobody else's; all of them end with the terminal. ``sudo`` does nothing there.
"""

from __future__ import annotations

import configparser
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType

from checkout import ROOT

PATIENCE_S = 300.0
_APART = ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
_BEGIN = "mkdir -p /run/railyard; mount -t tmpfs none /run/railyard; ip link set lo up; "
_SHELL = "setsid --ctty env --default-signal bash --norc --noediting -i"  # tests in the background ignore Ctrl-C
_QUIET_S = 1.0
_JOB = re.compile(r"\[\d+\][ +-]")
_PROMPT = re.compile(r"(?:\x1f(\d+)\x1f|(?:^|(?<=\n))mininet> )$")


def programs(folder: Path) -> Path:
    """A folder with the programs that a reader has after the set-up, as those of this checkout."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    texts = {"sudo": '#!/bin/sh\nexec "$@"\n', "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n'}
    for line in setup["options.entry_points"]["console_scripts"].splitlines():
        if "=" in line:
            name, module, function = re.split(r"\s*[=:]\s*", line.strip())
            code = f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n"
            texts[name] = f"#!{sys.executable}\n{code}"
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


class Terminal:
    """A shell in ``folder``; ``programs`` come first on its path."""

    def __init__(self, folder: Path, programs: Path, apart: bool) -> None:
        self.folder = folder
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {name: os.environ[name] for name in os.environ if not name.startswith(("RAILYARD", "PYTEST"))}
        environment |= {"TERM": "dumb", "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "PS1": "\x1f$?\x1f"}
        environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        environment["VIRTUAL_ENV_DISABLE_PROMPT"] = "1"  # of an environment that is activated
        command = [*_APART, "sh", "-c", f"{_BEGIN}exec {_SHELL}"] if apart else _SHELL.split()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.prompt, self.status, self.disturbed = "", 0, False
        self._read()

    def enter(self, line: str, interrupt: bool = False) -> list[str]:
        """What is printed until the next prompt, by lines; sets ``prompt``, and at the shell's also ``status``.

        With ``interrupt`` Ctrl-C is pressed when the program has printed something and then nothing for a while. Left
        out is what the shell says about programs in the background, which comes when it likes.
        """
        os.write(self._ours, f"{line}\n".encode())
        printed = self._read(interrupt).removeprefix(line).lstrip(" ").removeprefix("\n")
        return [each for each in printed.rstrip().splitlines() if not _JOB.match(each)]

    def _read(self, interrupt: bool = False) -> str:
        """What comes until a prompt; ``AssertionError`` with it if none comes in time."""
        end, raw = time.monotonic() + PATIENCE_S, b""
        while time.monotonic() < end:
            if select.select([self._ours], [], [], _QUIET_S)[0]:
                raw += os.read(self._ours, 65536)
                text = raw.decode(errors="replace").replace("\r\n", "\n")
                if prompt := _PROMPT.search(text):
                    self.prompt = "$ " if prompt.group(1) else "mininet> "
                    self.status = int(prompt.group(1) or 0)
                    return text[: prompt.start()]
            elif interrupt and raw.count(b"\n") > 1:  # more than the echo of what was typed
                os.write(self._ours, b"\x03")
                interrupt = False
        raise AssertionError(f"no prompt after {PATIENCE_S:.0f} s: {raw.decode(errors='replace')}")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)
