"""Goodput of hosts that all send to their neighbour at once, timed at the receivers.

Runs as a program in a host's namespace (``python -m experiments.bench.goodput``), one for each host, so that
it runs alike on our net and on stock Mininet.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import time
from contextlib import suppress

from railyard.priority import set_priority

PORT = 7300
_CHUNK_BYTES = 1 << 18
_NICE = -10
"""As the agents'."""
_WARM_UP_S = 1.5
"""Long enough that the last host's interpreter has started."""


def receive(address: str, seconds: float) -> float:
    """Accept one connection and return its goodput in Mb/s, over ``seconds`` after a warm-up.

    ``OSError`` if nobody calls, or if the sender falls silent for 20 s or hangs up.
    """
    with socket.create_server((address, PORT)) as listener:
        listener.settimeout(20)
        connection, _ = listener.accept()
    with connection:
        connection.settimeout(20)
        buffer = bytearray(_CHUNK_BYTES)
        first = time.monotonic()
        while time.monotonic() - first < _WARM_UP_S:
            connection.recv_into(buffer)
        received, start = 0, time.monotonic()
        while (now := time.monotonic()) - start < seconds:
            got = connection.recv_into(buffer)
            if got == 0:
                raise ConnectionError("the sender hung up before the measurement was over")
            received += got
    return received * 8 / (now - start) / 1e6


def send(address: str, seconds: float) -> None:
    """Send as fast as the line takes it until the receiver has seen enough."""
    end = time.monotonic() + seconds + 20
    while True:
        try:
            connection = socket.create_connection((address, PORT), timeout=5)
            break
        except OSError:
            if time.monotonic() > end:
                return
            time.sleep(0.05)
    data = bytes(_CHUNK_BYTES)
    try:
        while time.monotonic() < end:
            connection.sendall(data)
    except OSError:
        return


def main() -> None:
    """Receive on ``--listen`` and send to ``--to``; prints the goodput received in Mb/s."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    with suppress(OSError):
        os.setsid()  # so that the priority below is not the terminal's
    set_priority(_NICE)
    sender = threading.Thread(target=send, args=(options.to, options.seconds), daemon=True)
    sender.start()
    try:
        print(f"{receive(options.listen, options.seconds):.4f}", flush=True)
    except OSError as error:
        sys.exit(f"{options.listen} received nothing that could be measured ({error})")
    sender.join()  # the next host may still be measuring


if __name__ == "__main__":
    main()
