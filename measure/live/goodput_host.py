"""One host of the ring that measures goodput: sends on one socket and counts the bytes received on another.

A program of its own with the standard library only, so that sixteen of them start quickly. Arguments: the descriptors
to send and to receive on, the monotonic time to start at, seconds of warm-up, seconds of the measurement and the size
of the send buffer in bytes. Prints the bytes received during the measurement.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

_CHUNK_BYTES = 1 << 18


def send(sender: socket.socket, end: float) -> None:
    """Send as fast as the link allows until the monotonic time ``end``."""
    chunk = bytes(_CHUNK_BYTES)
    sender.settimeout(1)
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            sender.send(chunk)


def count(receiver: socket.socket, begin: float, end: float) -> int:
    """Bytes received between the two monotonic times; ends the process if the sender hangs up before ``end``."""
    buffer = bytearray(_CHUNK_BYTES)
    receiver.settimeout(0.05)
    arrived = 0
    while (now := time.monotonic()) < end:
        try:
            got = receiver.recv_into(buffer)
        except TimeoutError:
            continue
        if not got:
            sys.exit("the sender hung up before the measurement was over")
        if begin <= now < end:
            arrived += got
    return arrived


def main() -> None:
    sender, receiver = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])
    start, warm_up_s, window_s = map(float, sys.argv[3:6])
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, int(sys.argv[6]))
    time.sleep(max(0.0, start - time.monotonic()))
    end = start + warm_up_s + window_s
    threading.Thread(target=send, args=(sender, end + 0.05), daemon=True).start()
    print(count(receiver, start + warm_up_s, end), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
