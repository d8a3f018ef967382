"""Checksums and segments of TCP and UDP that the kernel finishes before an interface sends.

Between interfaces that promise to finish them, as veth and tap do, packets travel with checksums that are not filled in
and in segments larger than the MTU. Userspace Open vSwitch (3.1) passes the promise on as long as it forwards a packet
itself; in a packet-in it is lost, and the receiver discards what comes back as a packet-out.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterable

from railyard.errors import MachineError

_SIOCETHTOOL, _ETHTOOL_STXCSUM = 0x8946, 0x17
"""Requests of include/uapi/linux/sockios.h and ethtool.h. Without checksums to finish, an interface splits nothing
either."""


def finish(interfaces: Iterable[str]) -> None:
    """Let all that ``interfaces`` of the caller's network namespace send be finished: ``ethtool -K NAME tx off``.

    ``MachineError`` naming an interface for which the kernel refuses it.
    """
    off = array.array("I", [_ETHTOOL_STXCSUM, 0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        for name in interfaces:
            try:
                fcntl.ioctl(kernel, _SIOCETHTOOL, struct.pack("16sP16x", name.encode(), off.buffer_info()[0]))
            except OSError as error:
                raise MachineError(f"the checksum offload of {name} cannot be turned off: {error.strerror}") from None
