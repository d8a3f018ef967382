"""The system call bpf(2): maps and programs, held by file descriptors, gone with the last of them.

Nothing is pinned in a file system. Structures: ``union bpf_attr`` of linux/bpf.h.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import resource
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from railyard.errors import MachineError

_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
_MAP_CREATE, _MAP_UPDATE, _PROG_LOAD, _MAP_UPDATE_BATCH, _MAP_DELETE_BATCH = 0, 2, 5, 26, 27
_HASH, _ARRAY = 1, 2
_NO_PREALLOCATION, _MAPPABLE = 1 << 0, 1 << 10
_SCHED_CLS = 3
_LOG_BYTES = 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def _call(command: int, attributes: bytes, what: str) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise MachineError(f"{what} failed: the number of bpf(2) on {platform.machine()} is not known here")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(_libc.syscall(number, command, buffer, len(attributes)))
    if result < 0:
        code = ctypes.get_errno()
        raise MachineError(f"{what} failed ({os.strerror(code)}{_reason(code)})")
    return result


def _reason(code: int) -> str:
    """Why a kernel refuses bpf(2), where that can be seen."""
    if code not in (1, 13):
        return ""
    with suppress(OSError):
        lockdown = Path("/sys/kernel/security/lockdown").read_text()
        if "[confidentiality]" in lockdown:
            return ": the kernel is locked down"
    return ": bpf(2) needs the capabilities CAP_BPF and CAP_NET_ADMIN" if os.geteuid() == 0 else ": not root"


def _buffer(data: bytes) -> tuple[ctypes.Array[ctypes.c_char], int]:
    """A buffer with ``data`` and its address; it lasts as long as the first of them."""
    buffer = ctypes.create_string_buffer(data, len(data))
    return buffer, ctypes.addressof(buffer)


def unlimit_memory() -> None:
    """Let maps be of any size: up to Linux 5.10 they count for the memory that a process may lock, at first 64 KiB."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _new_map(kind: int, key_bytes: int, value_bytes: int, entries: int, flags: int, name: str) -> int:
    attributes = struct.pack("=7I16s", kind, key_bytes, value_bytes, entries, flags, 0, 0, name.encode()[:15])
    return _call(_MAP_CREATE, attributes, f"making the map {name} of {entries} entries")


class Array:
    """A map from 0, 1, ... to values of ``value_bytes`` (a multiple of 8), which the process reads and writes directly.

    ``words`` are its 64-bit words. ``MachineError`` if the kernel refuses it.
    """

    def __init__(self, entries: int, value_bytes: int, name: str) -> None:
        self.entries = entries
        self.fd = _new_map(_ARRAY, 4, value_bytes, entries, _MAPPABLE, name)
        page = mmap.PAGESIZE
        try:
            self._memory = mmap.mmap(self.fd, -(-entries * value_bytes // page) * page)
        except OSError as error:
            os.close(self.fd)
            raise MachineError(f"mapping {name} failed ({error.strerror})") from error
        self._view = memoryview(self._memory)
        self.words = self._view.cast("Q")

    def close(self) -> None:
        """Close the map; programs that use it keep it."""
        self.words.release()
        self._view.release()
        self._memory.close()
        os.close(self.fd)


class Hash:
    """A map from keys of ``key_bytes`` to values of ``value_bytes``; ``MachineError`` if the kernel refuses."""

    def __init__(self, entries: int, key_bytes: int, value_bytes: int, name: str) -> None:
        self._name = name
        self.fd = _new_map(_HASH, key_bytes, value_bytes, entries, _NO_PREALLOCATION, name)

    def update(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set the values of ``keys``; ``MachineError`` if the map is full, with some of them set."""
        if keys:
            self._batch(_MAP_UPDATE_BATCH, keys, b"".join(values), "adding to")

    def delete(self, keys: Sequence[bytes]) -> None:
        """Remove ``keys``, which must be in the map."""
        if keys:
            self._batch(_MAP_DELETE_BATCH, keys, b"", "removing from")

    def delete_some(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            with suppress(MachineError):
                self.delete([key])

    def _batch(self, command: int, keys: Sequence[bytes], values: bytes, verb: str) -> None:
        (held_keys, at_keys), (held_values, at_values) = _buffer(b"".join(keys)), _buffer(values)
        at_values = at_values if values else 0
        attributes = struct.pack("=4QIIQQ", 0, 0, at_keys, at_values, len(keys), self.fd, 0, 0)
        _call(command, attributes, f"{verb} the map {self._name} ({len(keys)} entries)")
        del held_keys, held_values

    def close(self) -> None:
        os.close(self.fd)


def load(code: bytes, name: str) -> int:
    """Load a program for tc; its descriptor. ``MachineError`` with the verifier's last line if it is rejected."""
    program, at_program = _buffer(code)
    licence, at_licence = _buffer(b"GPL\0")
    log, at_log = _buffer(bytes(_LOG_BYTES))
    attributes = struct.pack("=IIQQIIQII", _SCHED_CLS, len(code) // 8, at_program, at_licence, 0, 0, 0, 0, 0)
    attributes += name.encode()[:15].ljust(16, b"\0")
    try:
        return _call(_PROG_LOAD, attributes, f"loading the program {name}")
    except MachineError as error:
        logged = struct.pack(
            "=IIQQIIQII", _SCHED_CLS, len(code) // 8, at_program, at_licence, 1, _LOG_BYTES, at_log, 0, 0
        )
        with suppress(MachineError):
            return _call(_PROG_LOAD, logged + attributes[len(logged) :], f"loading the program {name}")
        lines = [line for line in log.raw.rstrip(b"\0").decode(errors="replace").splitlines() if line]
        said = next((line for line in reversed(lines) if not line.startswith("processed ")), "")
        raise MachineError(f"{error}{f': {said}' if said else ''}") from None
    finally:
        del program, licence
