"""Goodput of hosts that all send to their neighbour at the same time, measured by the receivers.

One process per host runs this module as a program in the host's namespace (``python -m experiments.bench.goodput``), so
the same code measures Railyard and stock Mininet.
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
"""Nice value of the process, the same as for agents."""
_WARM_UP_S = 1.5
"""Seconds before the measurement, in which the Python interpreter of the last host starts."""


def receive(address: str, seconds: float) -> float:
    """Accept one connection and return its goodput in Mb/s, over ``seconds`` after a warm-up.

    ``OSError`` if no sender connects, or if the sender is silent for 20 s or closes the connection.
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
    """Send to ``address`` at full speed until the receiver closes the connection, for ``seconds`` + 20 at most."""
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
        os.setsid()  # a session of its own, so that the priority applies to this process and not to the terminal's
    set_priority(_NICE)
    sender = threading.Thread(target=send, args=(options.to, options.seconds), daemon=True)
    sender.start()
    try:
        print(f"{receive(options.listen, options.seconds):.4f}", flush=True)
    except OSError as error:
        sys.exit(f"{options.listen} received nothing that could be measured ({error})")
    sender.join()  # the receiver of the next host may still be measuring


if __name__ == "__main__":
    main()
