"""Checkpoints on a host's disk, written so that a file is either whole or recognised as damaged.

The checkpoint of step k holds the state after k steps: steps 0 to k - 1 are in it, and an incarnation that loads it
begins with step k. A file is a head (magic, length and CRC-32 of what follows), a line of JSON (job, step, checksum,
bytes and CRC-32 of the state) and the state's bytes. It is written under another name, forced to disk and renamed.

A store keeps the two latest checkpoints and the one being written: while a member writes the checkpoint of a step, all
members have finished the last but one (a step's all-reduce needs them all, and a member whose last checkpoint is not on
disk when the next is due waits), so there is always one that all of them have.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from railyard.errors import AgentError, ConfigError
from railyard.ownership import make_folder, open_binary, reached, remove_file
from railyard.protocol import to_json
from railyard.validation import from_plain
from workloads.agent.state import Words

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
        """Path of the checkpoint of ``step``, whether it exists or not."""
        return self._folder / f"checkpoint-{step:08d}"

    def incoming(self, step: int) -> Path:
        """Path of the checkpoint of ``step`` while it is being written."""
        return self._folder / f".checkpoint-{step:08d}.new"

    def steps(self) -> tuple[int, ...]:
        """The steps for which there is a checkpoint of this job, in order, judged by file name and head."""
        found = []
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            match = _NAME.fullmatch(path.name)
            if match is not None and self._is_ours(path, int(match[1])):
                found.append(int(match[1]))
        return tuple(sorted(found))

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
