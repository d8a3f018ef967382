"""Checkpoints on a host's disk, written so that a file is either whole or recognised as damaged.

The checkpoint of step k holds the state after k steps: steps 0 to k - 1 are in it, and an incarnation that loads it
begins with step k. A file is a head (magic, length and CRC-32 of what follows), a line of JSON (job, step, checksum,
bytes and CRC-32 of the state) and the state's bytes. It is written under another name, forced to disk and renamed.

A store keeps the two latest checkpoints and the one being written: while a member writes the checkpoint of a step, all
members have finished the last but one (a step's all-reduce needs them all, and a member whose last checkpoint is not on
disk when the next is due waits), so there is always one that all of them have.

A checkpoint is copied from one host to another over the front-end network by TCP. The fetching rank connects, sends one
line of JSON (job, step), and gets one line back (``{"bytes": n}``, or ``{"error": sentence}``) and then the file. Plain
blocking sockets with time-outs, made for threads (``BackgroundTask``).
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from railyard.errors import AgentError, ConfigError
from railyard.ownership import make_folder, open_binary, reached, remove_file
from railyard.protocol import from_json, to_json
from railyard.validation import from_plain
from topos.plan import FabricPlan, HostPort
from workloads.agent.state import Words
from workloads.agent.transport.sockets import address_of, new_socket

_MAGIC = b"RYCKPT1\n"
_HEAD = struct.Struct("!8sII")
_NAME = re.compile(r"checkpoint-(\d{8,})")
_MOST_JSON_BYTES = 1 << 16
KEPT = 2
"""Complete checkpoints that stay when a new one is begun."""


class Damaged(Exception):
    """Raised for a file that is not a whole checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """State after ``step`` steps of ``job``; ``checksum`` is the running one (``workloads.agent.state``)."""

    job: str
    step: int
    checksum: int
    words: Words


@dataclass(frozen=True)
class _Head:
    """The line of JSON in a file: what its state is, its length and its CRC-32."""

    job: str
    step: int
    checksum: int
    bytes: int
    crc: int


class Store:
    """The checkpoints of ``job`` in ``folder``; files of other jobs and unreadable files are left alone."""

    def __init__(self, folder: str | Path, job: str) -> None:
        self._folder = Path(folder)
        self._job = job

    def make(self) -> None:
        """Make the folder where it is missing; raises ``AgentError`` where that fails."""
        try:
            make_folder(self._folder)
        except OSError as error:
            raise AgentError(f"checkpoints cannot be kept in {self._folder}: {error.strerror}") from None

    def path(self, step: int) -> Path:
        return self._folder / f"checkpoint-{step:08d}"

    def incoming(self, step: int) -> Path:
        """Path of the checkpoint of ``step`` while it is being written."""
        return self._folder / f".checkpoint-{step:08d}.new"

    def steps(self) -> tuple[int, ...]:
        """The steps for which there is a checkpoint of this job, in order, judged by file name and head."""
        kept = []
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            match = _NAME.fullmatch(path.name)
            if match is not None and self._is_ours(path, int(match[1])):
                kept.append(int(match[1]))
        return tuple(sorted(kept))

    def _is_ours(self, path: Path, step: int) -> bool:
        try:
            with path.open("rb") as file:
                head = _read_head(file)
        except (OSError, Damaged):
            return False
        return (head.job, head.step) == (self._job, step)

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint durably, after deleting older ones beyond ``KEPT``.

        Raises ``AgentError`` where the disk does not take it.
        """
        step = checkpoint.step
        try:
            for old in [old for old in self.steps() if old < step][:-KEPT]:
                remove_file(self.path(old))
            with open_binary(self.incoming(step), "wb") as file:
                file.write(_head_of(checkpoint))
                file.write(_bytes_of(checkpoint.words))
            self._keep(step)
        except OSError as error:
            raise AgentError(
                f"the checkpoint of step {step} of job {self._job} cannot be stored in {self._folder}: {error.strerror}"
            ) from None

    def _keep(self, step: int) -> None:
        """Force the complete ``incoming`` file to disk and give it its final name."""
        _force(self.incoming(step))
        with reached(self._folder) as folder:
            os.replace(self.incoming(step).name, self.path(step).name, src_dir_fd=folder, dst_dir_fd=folder)
        _force(self._folder)

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of exactly ``step``; raises ``AgentError`` if it is missing or damaged."""
        path = self.path(step)
        try:
            return self._checked(path, step)
        except FileNotFoundError:
            raise AgentError(f"there is no checkpoint of step {step} of job {self._job} in {self._folder}") from None
        except Damaged as damage:
            raise AgentError(f"the checkpoint {path} is damaged: {damage}") from None
        except OSError as error:
            raise AgentError(f"the checkpoint {path} cannot be read: {error.strerror}") from None

    def adopt(self, step: int) -> None:
        """Keep a copy that was received into ``incoming``; raises ``AgentError`` if it is damaged."""
        try:
            self._checked(self.incoming(step), step)
        except Damaged as damage:
            raise AgentError(f"the copy of the checkpoint of step {step} of job {self._job} is bad: {damage}") from None
        self._keep(step)

    def _checked(self, path: Path, step: int) -> Checkpoint:
        checkpoint = _read(path)
        if (checkpoint.job, checkpoint.step) != (self._job, step):
            raise Damaged(f"it holds step {checkpoint.step} of job {checkpoint.job}")
        return checkpoint


def _bytes_of(words: Words) -> memoryview:
    return words.data.cast("B") if len(words) else memoryview(bytearray())


def _head_of(checkpoint: Checkpoint) -> bytes:
    content = _bytes_of(checkpoint.words)
    head = _Head(checkpoint.job, checkpoint.step, checkpoint.checksum, len(content), zlib.crc32(content))
    line = to_json(head) + b"\n"
    return _HEAD.pack(_MAGIC, len(line), zlib.crc32(line)) + line


def _read_head(file: BinaryIO) -> _Head:
    """Read the description of the content; raises ``Damaged`` if the head is invalid."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise Damaged("its head is cut short")
    magic, length, crc = _HEAD.unpack(head)
    if magic != _MAGIC or length > _MOST_JSON_BYTES:
        raise Damaged("it does not begin with the magic of a checkpoint")
    line = file.read(length)
    if len(line) != length or zlib.crc32(line) != crc:
        raise Damaged("its head is not what was written")
    try:
        return from_plain(_Head, line, "the head of a checkpoint")
    except ConfigError as error:
        raise Damaged(f"its head is not that of a checkpoint ({error})") from None


def _read(path: Path) -> Checkpoint:
    with path.open("rb") as file:
        head = _read_head(file)
        there = os.fstat(file.fileno()).st_size - file.tell()
        if there != head.bytes or there % 4:
            raise Damaged(f"it has {there} bytes of state, where {head.bytes} were written")
        words = np.empty(there // 4, dtype=np.uint32)
        if file.readinto(_bytes_of(words)) != there:
            raise Damaged("its state is cut short")
    if zlib.crc32(_bytes_of(words)) != head.crc:
        raise Damaged("its state is not what was written")
    return Checkpoint(head.job, head.step, head.checksum, words)


def _force(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


TCP_PORT = 7701
_RETRY_S = 0.05
_MOST_LINE_BYTES = 4096
_PIECE_BYTES = 1 << 18


def front_end_port(plan: FabricPlan, rank: int) -> HostPort:
    """The port of ``rank`` on the front-end network; ``AgentError`` where the fabric gives it none."""
    for switch in plan.network("front-end"):
        for port in switch.ports:
            if port.rank == rank:
                return port
    raise AgentError(
        f"rank {rank} is to copy a checkpoint over the front-end network, but the fabric gives that rank no port there"
    )


class CheckpointServer:
    """Serves the checkpoints of ``store`` to the hosts of the ranks ``to``, from threads, until it is closed.

    ``timeout_s`` bounds the time in which one peer moves no byte. Must be made in the network namespace of ``rank``.
    """

    def __init__(self, plan: FabricPlan, rank: int, to: Iterable[int], store: Store, timeout_s: float) -> None:
        port = front_end_port(plan, rank)
        self._rank = rank
        self._store = store
        self._timeout_s = timeout_s
        self._peers = {address_of(front_end_port(plan, peer)) for peer in to}
        self._listener = new_socket(port.interface)
        self._listener.setblocking(True)
        try:
            self._listener.bind((address_of(port), TCP_PORT))
            self._listener.listen(64)
        except OSError as error:
            self._listener.close()
            raise AgentError(
                f"rank {rank} cannot offer its checkpoint on {port.interface} ({address_of(port)}): {error.strerror}"
            ) from None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, (address, _) = self._listener.accept()
            except OSError:
                return
            if address in self._peers:
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()
            else:
                sock.close()

    def _serve(self, sock: socket.socket) -> None:
        with sock, suppress(OSError, ValueError, KeyError):  # the fetching end reports the failure
            sock.settimeout(self._timeout_s)
            wanted = _line_in(sock)
            path = self._store.path(int(wanted["step"]))
            try:
                file = path.open("rb")
            except OSError as error:
                _send_line(sock, error=f"rank {self._rank} has no checkpoint {path.name} ({error.strerror})")
                return
            with file:
                _send_line(sock, bytes=path.stat().st_size)
                sock.sendfile(file)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def fetch(plan: FabricPlan, rank: int, source: int, store: Store, job: str, step: int, timeout_s: float) -> None:
    """Copy the checkpoint of ``step`` from the host of rank ``source`` into ``store``.

    Raises ``AgentError`` when no server answers within ``timeout_s``, when no byte arrives for so long, or when the
    copy is damaged.
    """
    failed = f"rank {rank} cannot copy the checkpoint of step {step} from rank {source}"
    with _connect(front_end_port(plan, rank), front_end_port(plan, source), failed, timeout_s) as sock:
        try:
            _send_line(sock, job=job, step=step)
            answer = _line_in(sock)
            if "error" in answer:
                raise AgentError(f"{failed}: {answer['error']}")
            with open_binary(store.incoming(step), "wb") as file:
                _receive(sock, file, int(answer["bytes"]))
            store.adopt(step)
        except TimeoutError:
            raise AgentError(f"{failed}: nothing came for {timeout_s:g} s") from None
        except EOFError:
            raise AgentError(f"{failed}: the connection was closed before the end") from None
        except OSError as error:
            raise AgentError(f"{failed}: {error.strerror}") from None
        except (ValueError, KeyError):
            raise AgentError(f"{failed}: the answer is not that of a checkpoint server") from None


def _connect(here: HostPort, there: HostPort, failed: str, timeout_s: float) -> socket.socket:
    """Connect, with retries while the server does not listen yet: the agents start at about the same time."""
    end = time.monotonic() + timeout_s
    while True:
        sock = new_socket(here.interface)
        sock.settimeout(max(_RETRY_S, end - time.monotonic()))
        try:
            sock.bind((address_of(here), 0))
            sock.connect((address_of(there), TCP_PORT))
            sock.settimeout(timeout_s)
            return sock
        except OSError as error:
            sock.close()
            if time.monotonic() + _RETRY_S > end:
                raise AgentError(
                    f"{failed}: no checkpoint server answers there within {timeout_s:g} s ({error})"
                ) from None
            time.sleep(_RETRY_S)


def _receive(sock: socket.socket, file: BinaryIO, left: int) -> None:
    piece = memoryview(bytearray(_PIECE_BYTES))
    while left:
        count = sock.recv_into(piece[: min(left, len(piece))])
        if count == 0:
            raise EOFError
        file.write(piece[:count])
        left -= count


def _send_line(sock: socket.socket, **fields: Any) -> None:
    sock.sendall(json.dumps(fields).encode() + b"\n")


def _line_in(sock: socket.socket) -> dict[str, Any]:
    """The JSON object in the line that comes; ``ValueError`` for anything else."""
    line = from_json(_read_line(sock))
    if not isinstance(line, dict) or not all(isinstance(value, int | str) for value in line.values()):
        raise ValueError("the line is no object of numbers and text")
    return line


def _read_line(sock: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte or len(line) >= _MOST_LINE_BYTES:
            raise EOFError
        line += byte
    return bytes(line)
