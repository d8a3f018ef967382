"""``railyard sweep remote-point``: one attempt of a point for another machine, in a folder that is gone afterwards.

The point comes as a line of JSON on standard input. The results go to standard output: a line of JSON (``Sent``), then
the archive of the attempt's folder. The end of standard input is the end of whoever asked, and the point is stopped
then. So nothing goes on after a worker that was killed, also where the point runs as root and the worker does not.

The line ``calibrate`` in place of a point lets the machine be calibrated in the same way, without results.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass

from commands.sweep.execute import last_line, run_attempt, run_command
from commands.sweep.folder import LOG
from commands.sweep.model import ModelProcess
from commands.sweep.point import EXPERIMENT_FILE, SweepPoint, attempt_folder
from commands.sweep.workers.archive import digest, pack
from railyard.errors import ConfigError
from railyard.ownership import make_folder, open_binary, temporary_folder
from railyard.validation import Name, Seconds, Whole, from_plain
from railyard.yaml_file import written_mapping

NAME = "remote-point"
CALIBRATE = b"calibrate\n"
"""What stands on standard input in place of a point if the machine is to be calibrated."""
MOST_POINT_BYTES = 4 << 20
"""The longest line with a point, in bytes."""
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Sent:
    """How an attempt ended (``execute.Attempt``), and the size and SHA-256 of the archive of its folder."""

    status: Whole
    seconds: Seconds
    said: str
    size: Whole
    sha256: Name


def measured(point: SweepPoint, model: ModelProcess | None = None) -> tuple[Sent, bytes]:
    """Run a point once in a temporary folder; returns how that ended, and the archive of the attempt's folder."""
    with temporary_folder() as folder:
        make_folder(attempt_folder(folder, 1))
        with open_binary(folder / EXPERIMENT_FILE, "wb") as file:
            file.write(written_mapping(point.file).encode())
        attempt = run_attempt(point, folder, 1, model)
        data = pack(attempt_folder(folder, 1))
    return Sent(attempt.status, round(attempt.seconds, 3), attempt.said, len(data), digest(data)), data


def main() -> int:
    """Run the point of standard input, or calibrate; returns the status of this command, which is not the point's."""
    line = _line(sys.stdin.fileno())
    threading.Thread(target=_stop_at_end, args=(sys.stdin.fileno(),), daemon=True).start()
    if line == CALIBRATE:
        return _calibrate()
    sent, data = measured(from_plain(SweepPoint, line, "a point"))
    sys.stdout.buffer.write(json.dumps(asdict(sent)).encode() + b"\n" + data)
    sys.stdout.buffer.flush()
    return 0


def _calibrate() -> int:
    """Calibrate this machine; returns the exit status of that, and its last line on standard error if it failed."""
    with temporary_folder() as folder:
        status = run_command(["railyard", "calibrate", "--quick"], folder / LOG)
        if status:
            print(last_line(folder / LOG), file=sys.stderr)
    return status


def _line(source: int) -> bytes:
    """The first line of a stream, and no byte of what follows it."""
    found = b""
    while not found.endswith(b"\n"):
        piece = os.read(source, _CHUNK_BYTES)
        found += piece
        if not piece or len(found) > MOST_POINT_BYTES or b"\n" in found[:-1]:
            raise ConfigError(
                "standard input must be one line with a point; railyard sweep starts this command itself", key=NAME
            )
    return found


def _stop_at_end(source: int) -> None:
    """Stop this process in order, as SIGTERM does, at the end of its standard input."""
    while os.read(source, _CHUNK_BYTES):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
