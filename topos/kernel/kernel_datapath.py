"""Open vSwitch's datapath in the kernel: whether the kernel has one, and how it is removed (generic netlink).

A datapath outlives the ovs-vswitchd that made it, and while it exists, the kernel refuses to delete its ports.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from railyard.errors import MachineError
from topos.kernel.namespaces import inside
from topos.kernel.netlink import attributes

_REQUEST, _REQUEST_AND_ACK = 1, 5
_ERROR = 2
_CONTROL_FAMILY, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_DELETE_DATAPATH, _DATAPATH_NAME = 2, 1
_FAMILY = "ovs_datapath"
_NAME = "ovs-system"
"""The one datapath of all bridges of an ovs-vswitchd; there is at most one in a namespace."""


def _attribute(kind: int, text: str) -> bytes:
    value = text.encode() + b"\0"
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _ask(generic: socket.socket, family: int, flags: int, command: int, version: int, body: bytes) -> bytes | OSError:
    """The kernel's answer to a request: a message with its header, or the error that it reports.

    A request that is answered by a message must not ask for an acknowledgement too: that would be read as the answer to
    the next request.
    """
    body = struct.pack("=BBxx", command, version) + body
    generic.send(struct.pack("=IHHII", 16 + len(body), family, flags, 1, 0) + body)
    answer = generic.recv(65536)
    (kind,) = struct.unpack_from("=H", answer, 4)
    number = -struct.unpack_from("=i", answer, 16)[0] if kind == _ERROR else 0
    return OSError(number, os.strerror(number)) if number else answer


def _family(generic: socket.socket) -> int | None:
    """The number of Open vSwitch's messages about datapaths; None if the kernel has no such module."""
    answer = _ask(generic, _CONTROL_FAMILY, _REQUEST, _GET_FAMILY, 1, _attribute(_FAMILY_NAME, _FAMILY))
    if isinstance(answer, OSError):
        return None
    (length,) = struct.unpack_from("=I", answer)
    found = (start for kind, start, _ in attributes(answer, 20, length) if kind == _FAMILY_ID)
    return next((int(struct.unpack_from("=H", answer, start)[0]) for start in found), None)


def _open() -> socket.socket:
    generic = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 16)
    generic.settimeout(30)
    return generic


def kernel_datapath() -> bool:
    """Whether the kernel has the Open vSwitch datapath; the request loads its module if necessary."""
    with _open() as generic:
        return _family(generic) is not None


def remove_kernel_datapath(netns_fd: int) -> None:
    """Remove the datapath of a namespace, with the ports that it made; does nothing if there is none.

    Its ovs-vswitchd must have ended. Raises ``MachineError`` if the kernel refuses.
    """
    with inside(netns_fd), _open() as generic:
        family = _family(generic)
        if family is None:
            return
        named = struct.pack("=i", 0) + _attribute(_DATAPATH_NAME, _NAME)
        refused = _ask(generic, family, _REQUEST_AND_ACK, _DELETE_DATAPATH, 2, named)
    if isinstance(refused, OSError) and refused.errno != errno.ENODEV:
        raise MachineError(f"the kernel does not remove the datapath {_NAME} of the run: {refused.strerror}")
