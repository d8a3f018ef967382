"""Copies a checkpoint file from one host to another over the front-end network by TCP.

The fetching rank connects, sends one line of JSON (job, step), and gets one line back (``{"bytes": n}``, or ``{"error":
sentence}``) and then the file. Plain blocking sockets with time-outs, made for threads (``BackgroundTask``).
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, BinaryIO

from railyard.errors import AgentError
from railyard.ownership import open_binary
from railyard.protocol import from_json
from topos.plan import FabricPlan, HostPort
from workloads.agent.checkpoint import Store
from workloads.agent.transport.sockets import new_socket

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
        self._peers = {_ip(front_end_port(plan, peer)) for peer in to}
        self._listener = new_socket(port.interface)
        self._listener.setblocking(True)
        try:
            self._listener.bind((_ip(port), TCP_PORT))
            self._listener.listen(64)
        except OSError as error:
            self._listener.close()
            raise AgentError(
                f"rank {rank} cannot offer its checkpoint on {port.interface} ({_ip(port)}): {error.strerror}"
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
        """Accept no more connections; copies under way continue."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def fetch(plan: FabricPlan, rank: int, source: int, store: Store, job: str, step: int, timeout_s: float) -> None:
    """Copy the checkpoint of ``step`` from the host of rank ``source`` into ``store``.

    Raises ``AgentError`` when no server answers within ``timeout_s``, when no byte arrives for so long, or when the
    copy is damaged.
    """
    what = f"rank {rank} cannot copy the checkpoint of step {step} from rank {source}"
    with _connect(front_end_port(plan, rank), front_end_port(plan, source), what, timeout_s) as sock:
        try:
            _send_line(sock, job=job, step=step)
            answer = _line_in(sock)
            if "error" in answer:
                raise AgentError(f"{what}: {answer['error']}")
            with open_binary(store.incoming(step), "wb") as file:
                _receive(sock, file, int(answer["bytes"]))
            store.adopt(step)
        except TimeoutError:
            raise AgentError(f"{what}: nothing came for {timeout_s:g} s") from None
        except EOFError:
            raise AgentError(f"{what}: the connection was closed before the end") from None
        except OSError as error:
            raise AgentError(f"{what}: {error.strerror}") from None
        except (ValueError, KeyError):
            raise AgentError(f"{what}: the answer is not that of a checkpoint server") from None


def _connect(here: HostPort, there: HostPort, what: str, timeout_s: float) -> socket.socket:
    """Connect, with retries while the server does not listen yet: the agents start at about the same time."""
    end = time.monotonic() + timeout_s
    while True:
        sock = new_socket(here.interface)
        sock.settimeout(max(_RETRY_S, end - time.monotonic()))
        try:
            sock.bind((_ip(here), 0))
            sock.connect((_ip(there), TCP_PORT))
            sock.settimeout(timeout_s)
            return sock
        except OSError as error:
            sock.close()
            if time.monotonic() + _RETRY_S > end:
                raise AgentError(
                    f"{what}: no checkpoint server answers there within {timeout_s:g} s ({error})"
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


def _ip(port: HostPort) -> str:
    return port.ip.split("/")[0]
