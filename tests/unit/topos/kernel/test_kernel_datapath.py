"""The kernel's datapath of Open vSwitch: what is asked of the kernel, and what its answers mean. No root."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from railyard.errors import MachineError
from topos.kernel import ovs as module
from topos.kernel.ovs import kernel_datapath, remove_kernel_datapath

FAMILY = 33


def answer(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def error(number: int) -> bytes:
    return answer(2, struct.pack("=i", -number) + bytes(16))


NAME_AND_NUMBER = struct.pack("=HH", 17, 2) + b"ovs_datapath\0" + bytes(3) + struct.pack("=HHHxx", 6, 1, FAMILY)
FOUND = answer(16, struct.pack("=BBxx", 1, 2) + NAME_AND_NUMBER)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The end of the kernel; it is there before it is asked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(module, "_open", lambda: ours)
    monkeypatch.setattr(module, "inside", lambda fd: nullcontext())
    with ours, theirs:
        yield theirs


@pytest.mark.parametrize(("said", "has"), [(FOUND, True), (error(errno.ENOENT), False)])
def test_a_kernel_without_the_module_does_not_know_the_family(kernel: socket.socket, said: bytes, has: bool) -> None:
    kernel.send(said)
    assert kernel_datapath() is has
    assert b"ovs_datapath\0" in kernel.recv(4096)


@pytest.mark.parametrize("said", [error(0), answer(FAMILY, bytes(24)), error(errno.ENODEV)])
def test_the_datapath_of_a_dead_switch_is_removed_by_its_name(kernel: socket.socket, said: bytes) -> None:
    kernel.send(FOUND)
    kernel.send(said)
    remove_kernel_datapath(-1)
    kernel.recv(4096)
    request = kernel.recv(4096)
    length, kind, flags = struct.unpack_from("=IHH", request)
    assert (length, kind, flags) == (len(request), FAMILY, 5)
    assert request[16:18] == bytes([2, 2]) and request.endswith(b"ovs-system\0\0")


def test_a_refusal_is_one_sentence(kernel: socket.socket) -> None:
    kernel.send(FOUND)
    kernel.send(error(errno.EPERM))
    with pytest.raises(MachineError, match=r"does not remove the datapath .*: Operation not permitted"):
        remove_kernel_datapath(-1)


def test_a_refusal_is_seen_after_a_request_that_the_kernel_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_socket = module._open
    monkeypatch.setattr(module, "_FAMILY", "nlctrl")  # which every kernel has
    with open_socket() as generic:
        family = module._family(generic)
        assert family == module._CONTROL_FAMILY
        refused = module._ask(generic, family, module._REQUEST_AND_ACK, 99, 1, b"")
    assert isinstance(refused, OSError) and refused.errno == errno.EOPNOTSUPP
