"""The tasks of a worker of Dask: it describes its machine, and runs points as subprocesses.

A subprocess (``railyard sweep remote-point``) runs one attempt of a point in a folder that is gone afterwards. The
point comes as a line of JSON on its standard input. The results go to standard output: a line of JSON (``Sent``), then
the archive of the attempt's folder. The end of standard input is the end of whoever asked, and the point is stopped
then. So nothing goes on after a worker that was killed, also where the point runs as root and the worker does not.

The line ``calibrate`` in place of a point lets the machine be calibrated in the same way, without results.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from commands.command_process import last_line, last_line_of, run_command
from commands.sweep.execute import run_attempt
from commands.sweep.folder import LOG
from commands.sweep.model import ModelProcess
from commands.sweep.spec import EXPERIMENT_FILE, SweepPoint, attempt_folder
from commands.sweep.workers.machine_check import inspected
from railyard.errors import ConfigError, MachineError, shortened
from railyard.ownership import make_folder, open_binary, temporary_folder
from railyard.process.start import child_environment, python_command, run_program, start_program
from railyard.reading import files_below
from railyard.validation import Name, Seconds, Whole, from_plain
from railyard.yaml_file import written_mapping

_HEAD_BYTES = 4096
_SUDO_S = 10.0
_STOP_S = 40.0
"""Seconds that points have to end when they are stopped: half a minute to take their fabric down, and some more."""
_running: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()
_model = ModelProcess()


def describe(files: Sequence[str], measured: bool) -> dict[str, Any]:
    """A ``machine_check.MachineReport`` of this machine as plain data; ``files`` are those whose content counts.

    Root and what the machine lacks are looked at for points that are ``measured`` alone.
    """
    return asdict(inspected(files, _becomes_root() if measured else "", measured=measured))


def _becomes_root() -> str:
    """How this process runs something as root: ``root``, ``sudo``, or empty if it cannot."""
    if os.geteuid() == 0:
        return "root"
    done = run_program([*_railyard_as_root(), "--version"], _SUDO_S, env=child_environment())
    return "sudo" if done.status == 0 else ""


def _railyard_as_root() -> list[str]:
    return ["sudo", "-n", "--", str(Path(sys.prefix) / "bin" / "railyard")]


def railyard(*arguments: str, root: bool) -> list[str]:
    """The command line of ``railyard`` with ``arguments`` for this process; with sudo if it needs ``root``."""
    if root and os.geteuid() != 0:
        return [*_railyard_as_root(), *arguments]
    return python_command("commands.main", *arguments)


def calibrate() -> str:
    """Calibrate this machine (``railyard calibrate --quick``); returns the last line that it printed if that failed."""
    with _asked(CALIBRATE, root=True) as (process, said):
        return last_line_of(said) if process.wait() else ""


def run_task(point: Mapping[str, Any], *, root: bool) -> dict[str, Any]:
    """Run a point (``SweepPoint`` as plain data); returns the fields of ``remote_point.Sent``, and ``archive``.

    Predictions come from a process that stays for the next one. ``MachineError`` if there is no outcome, with the last
    line that the command printed.
    """
    if point["predict"]:
        sent, data = measured(from_plain(SweepPoint, dict(point), "a point"), _model)
        return {**asdict(sent), "archive": data}
    with _asked(json.dumps(point).encode() + b"\n", root=root) as (process, said):
        assert process.stdout
        return _outcome(process.stdout, said)


@contextmanager
def _asked(line: bytes, *, root: bool) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """``remote_point`` as a subprocess that got ``line``, and what it prints on standard error; stopped at the end."""
    with tempfile.TemporaryFile() as said:
        process = start_program(
            railyard("sweep", NAME, root=root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=child_environment(),
        )
        assert process.stdin and process.stdout
        with _lock:
            _running.add(process)
        try:
            with suppress(BrokenPipeError):  # it has ended: what it printed says why
                process.stdin.write(line)
                process.stdin.flush()  # and left open: its end would stop the point
            yield process, said
        finally:
            _ask_to_stop(process)
            process.stdout.close()
            process.wait()
            with _lock:
                _running.discard(process)


def _outcome(source: IO[bytes], said: IO[bytes]) -> dict[str, Any]:
    line = source.readline(_HEAD_BYTES)
    if not line.endswith(b"\n"):
        raise _no_outcome(said)
    sent = from_plain(Sent, line, "an outcome")
    data = source.read(sent.size) if sent.size <= MOST_BYTES else b""
    if len(data) != sent.size:
        raise _no_outcome(said)
    return {**asdict(sent), "archive": data}


def _no_outcome(said: IO[bytes]) -> MachineError:
    return MachineError(f"a point has ended without results: {last_line_of(said)}")


def _ask_to_stop(process: subprocess.Popen[bytes]) -> None:
    """End the standard input of a point, which stops it unless it has ended."""
    assert process.stdin
    with suppress(BrokenPipeError, ValueError):
        process.stdin.close()


def stop_tasks() -> None:
    """Stop all that this process runs, in order; returns when they have ended, at the latest after 40 s."""
    with _lock:
        running = [*_running]
    for process in running:
        _ask_to_stop(process)
    for process in running:
        with suppress(subprocess.TimeoutExpired):  # that of root ends by itself
            process.wait(_STOP_S)
    _model.close()


# ---- the subprocess of a point ---------------------------------------------------------------------------------------


NAME = "remote-point"
CALIBRATE = b"calibrate\n"
"""Line on standard input in place of a point if the machine is to be calibrated."""
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
    data = b""
    while not data.endswith(b"\n"):
        piece = os.read(source, _CHUNK_BYTES)
        data += piece
        if not piece or len(data) > MOST_POINT_BYTES or b"\n" in data[:-1]:
            raise ConfigError(
                "standard input must be one line with a point; railyard sweep starts this command itself", key=NAME
            )
    return data


def _stop_at_end(source: int) -> None:
    """Stop this process in order, as SIGTERM does, at the end of its standard input."""
    while os.read(source, _CHUNK_BYTES):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


# ---- files of a folder as bytes, unpacked with care ------------------------------------------------------------------


MOST_BYTES = 512 << 20
"""Most bytes that the files of a folder may have together, and most bytes of an archive."""
MOST_FILES = 20_000
MOST_DEPTH = 16
_PIECE_BYTES = 1 << 20
_LEVEL = 1  # of gzip: a log of 100 MB takes 1 s at this level and 4 s at the default one


def pack(folder: Path) -> bytes:
    """The regular files below ``folder`` as a compressed tar archive; links, sockets and empty folders are left out.

    ``MachineError`` for more than ``MOST_BYTES`` or ``MOST_FILES`` of them, which says what would work.
    """
    held, size = io.BytesIO(), 0
    with tarfile.open(fileobj=held, mode="w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT) as archive:
        files = (file for file in sorted(files_below(folder)) if file.is_file() and not file.is_symlink())
        for number, file in enumerate(files):
            member = tarfile.TarInfo(file.relative_to(folder).as_posix())
            with open(file, "rb") as content:
                member.size = os.fstat(content.fileno()).st_size
                size += member.size
                if size > MOST_BYTES or number == MOST_FILES:
                    raise MachineError(
                        f"the results of a point are more than {MOST_BYTES >> 20} MiB or {MOST_FILES} files, the most "
                        f"that is sent between machines; shorten it (steps, iterations), or run it on one machine"
                    )
                archive.addfile(member, content)
    return held.getvalue()


def digest(data: bytes) -> str:
    """SHA-256 of an archive, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def unpack(data: bytes, expected: str, folder: Path, machine: str) -> list[str]:
    """Write the files of an archive that came from ``machine`` below ``folder``; returns their names.

    Files belong to the caller of sudo, and are on the disk when this returns. ``MachineError``, with nothing written,
    unless the content has the SHA-256 ``expected`` and holds regular files alone, each once, by a relative path that
    stays in the folder, within the bounds of ``pack``.
    """
    if digest(data) != expected:
        raise MachineError(f"the results from machine {machine} did not arrive as they were sent; run the point again")
    try:
        names = [name for name, _ in _members(data, machine)]
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise MachineError(
            f"the results from machine {machine} are no archive ({error}); run the point again"
        ) from None
    for name, member in _members(data, machine):
        target = folder / name
        make_folder(target.parent)
        with open_binary(target, "wb") as out:
            while piece := member.read(_PIECE_BYTES):
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
    return names


def _members(data: bytes, machine: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Each file of an archive with its checked name; ``MachineError`` for what must not be unpacked."""
    size, seen = 0, set[str]()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # or the list of an endless archive would fill memory
            size += member.size
            why = _refused(member, seen)
            if size > MOST_BYTES or len(seen) >= MOST_FILES:
                why = "is one file too many, or too large"
            if why:
                raise MachineError(
                    f"the results from machine {machine} are not unpacked: {shortened(ascii(member.name))} {why}"
                )
            seen.add(member.name)
            content = archive.extractfile(member)
            assert content is not None
            yield member.name, content


def _refused(member: tarfile.TarInfo, seen: set[str]) -> str:
    """Why a member of an archive must not be unpacked; empty if it may be."""
    path = PurePosixPath(member.name)
    if not member.isreg() or member.issparse():
        return "is no regular file"
    if path.is_absolute() or ".." in path.parts or str(path) != member.name or not member.name.isprintable():
        return "is no plain relative path"
    if len(path.parts) > MOST_DEPTH or any(len(part.encode()) > 255 for part in path.parts):
        return "is too long a path"
    if member.name in seen or any(str(parent) in seen for parent in path.parents):
        return "is there twice"
    return ""
