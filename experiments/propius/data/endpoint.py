"""Frames over TCP between network namespaces, on asyncio's streams: a server, a client, and one of several connections.

A socket is made inside its namespace and belongs to it from then on, so one process and one event loop serve many
hosts. A connection carries one request at a time; its answer comes before the next request.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

from experiments.propius.data import messages
from experiments.propius.data.messages import EdgeError, EdgeRefused, Frame, Payload, Reply
from railyard.errors import MachineError, RailyardError
from railyard.protocol import to_json
from topos.kernel.namespaces import inside

Address = tuple[str, int]
_T = TypeVar("_T")

PATIENCE_S = 30.0
"""Default longest time of one call, and the time after which an unreachable peer counts as gone."""
_UP_WITHIN_S = 8.0
_TRY_EVERY_S = 0.02
_CHUNK_BYTES = 64 << 10
_BUFFER_BYTES = 1 << 18
_BACKLOG = 512
_TCP_USER_TIMEOUT = 18
"""include/uapi/linux/tcp.h; Python has the name from 3.6 on, but not on every platform that mypy checks."""


async def within(seconds: float, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of ``work``; ``asyncio.TimeoutError`` if it is not done by then.

    Before Python 3.12 ``asyncio.wait_for`` loses a cancellation that comes when the work has just been done.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be cancelled at once
    try:
        await asyncio.wait((task,), timeout=seconds)
        if task.done():
            return task.result()
        raise asyncio.TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))  # its socket may be closed only when the loop no longer watches it


Handler = Callable[[Frame], Awaitable[Reply]]


class FrameStream:
    """One TCP connection that carries frames with at most ``most_payload`` bytes of payload each."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most_payload: int) -> None:
        self._reader, self._writer = reader, writer
        self._most_payload = most_payload
        self._sock: socket.socket = writer.get_extra_info("socket")
        self._low_water = 1
        writer.transport.set_write_buffer_limits(high=0)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, round(PATIENCE_S))
        self._sock.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, round(1000 * PATIENCE_S))

    async def send(self, head: bytes, payload: Payload = b"") -> None:
        """Send a frame; returns when the socket has taken it. ``OSError`` if the connection is broken."""
        self._writer.writelines((head, payload))
        await self._writer.drain()

    async def receive(self) -> Frame | None:
        """The next frame; None if the other side has closed the connection.

        Raises ``EdgeError`` for what is no frame or breaks off, ``OSError`` if the connection is broken.
        """
        try:
            head = await self._reader.readexactly(messages.HEADER.size)
        except asyncio.IncompleteReadError:
            return None
        fields, size = messages.lengths(head, self._most_payload)
        try:
            json = await self._reader.readexactly(fields)
            return Frame(json, await self._payload(size)) if size else Frame(json)
        except asyncio.IncompleteReadError:
            raise EdgeError("a connection broke off in the middle of a frame") from None

    async def _payload(self, size: int) -> bytearray:
        """A payload of ``size`` bytes; the kernel wakes this process for many of them, and not for each packet."""
        payload = bytearray()
        while (rest := size - len(payload)) > 0:
            self._wake_at(min(rest, _CHUNK_BYTES))
            payload += await self._reader.read(rest) or await self._reader.readexactly(1)  # which raises at the end
        self._wake_at(1)
        return payload

    def _wake_at(self, size: int) -> None:
        if size != self._low_water:
            self._low_water = size
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    @asynccontextmanager
    async def cancels(self) -> AsyncIterator[None]:
        """Cancel the calling task if the other side closes the connection, or sends more, before the block ends."""
        task = asyncio.current_task()
        assert task is not None
        more = asyncio.ensure_future(self._reader.read(1))
        more.add_done_callback(lambda read: None if read.cancelled() else task.cancel(str(read.exception())))
        try:
            yield
        finally:
            more.cancel()
            await asyncio.wait((more,))

    def close(self) -> None:
        """End the connection; pending calls of ``send`` and ``receive`` end."""
        self._writer.transport.abort()


class Server:
    """A listening server (``serve``)."""

    def __init__(self, handler: Handler, most_payload: int, cancels: bool) -> None:
        self._handler = handler
        self._most_payload = most_payload
        self._cancels = cancels
        self._connections: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=listener, backlog=_BACKLOG, limit=_BUFFER_BYTES)
        self.address: Address = listener.getsockname()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(OSError, EdgeError):
                await self._talk(FrameStream(reader, writer, self._most_payload))
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _talk(self, connection: FrameStream) -> None:
        while (request := await connection.receive()) is not None:
            async with connection.cancels() if self._cancels else nullcontext():
                reply = await self._answer(request)
            await connection.send(messages.header(to_json(reply.fields), reply.payload), reply.payload)

    async def _answer(self, request: Frame) -> Reply:
        try:
            return await self._handler(request)
        except RailyardError as error:
            return Reply({"error": str(error)})
        except OSError as error:  # not of this connection, so it must not end as quietly
            context = {"message": "a server could not answer a request", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            raise EdgeError("the request has no answer") from error

    async def close(self) -> None:
        """Close the listener and all connections; requests that are being answered are given up."""
        assert self._server is not None, "it listens"
        self._server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def serve(
    netns_fd: int | None,
    address: Address,
    handler: Handler,
    *,
    most_payload: int = 0,
    cancels: bool = False,
) -> Server:
    """Listen at ``address`` in a namespace (None: that of this process) and answer each request by ``handler``.

    A ``RailyardError`` of the handler is the answer with the field ``error``. A request with more than
    ``most_payload`` bytes of payload ends its connection. With ``cancels`` the handler is cancelled when the connection
    ends before its answer. ``MachineError`` if the address cannot be used.
    """
    with inside(netns_fd) if netns_fd is not None else nullcontext():
        try:
            listener = socket.create_server(address, backlog=_BACKLOG)
        except OSError as error:
            raise MachineError(f"no server can listen at {address[0]}:{address[1]}: {error.strerror}") from None
    server = Server(handler, most_payload, cancels)
    await server.listen(listener)
    return server


class Client:
    """A connection from a namespace (None: that of this process) to the server at ``address``, made by the first call.

    Calls from several tasks wait for each other. After an ``EdgeError`` that is no ``EdgeRefused`` the connection is
    closed, and the next call makes another. ``most_payload`` bounds the payload of an answer, ``patience_s`` the time
    of the connecting and of each call.
    """

    def __init__(
        self, netns_fd: int | None, address: Address, *, most_payload: int = 0, patience_s: float = PATIENCE_S
    ) -> None:
        self._netns_fd, self._address, self._most_payload = netns_fd, address, most_payload
        self._peer = f"{address[0]}:{address[1]}"
        self._patience_s = patience_s
        self._turn = asyncio.Lock()
        self._stream: FrameStream | None = None

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    async def connect(self) -> None:
        """Connect now, if there is no connection. ``EdgeError`` if the server does not answer."""
        async with self._turn:
            await self._connected()

    async def connect_when_up(self) -> None:
        """Connect to a server that is being started: tried for some seconds before ``EdgeError`` is raised."""
        end = time.monotonic() + _UP_WITHIN_S
        while True:
            try:
                return await self.connect()
            except EdgeError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(_TRY_EVERY_S)

    async def _connected(self) -> FrameStream:
        if self._stream is not None:
            return self._stream
        with inside(self._netns_fd) if self._netns_fd is not None else nullcontext():
            sock = socket.socket()
        try:
            sock.setblocking(False)
            await within(self._patience_s, asyncio.get_running_loop().sock_connect(sock, self._address))
            streams = await asyncio.open_connection(sock=sock, limit=_BUFFER_BYTES)
            self._stream = FrameStream(*streams, self._most_payload)
            return self._stream
        except (OSError, asyncio.TimeoutError) as error:
            sock.close()
            why = getattr(error, "strerror", None) or f"no answer within {self._patience_s:g} s"
            raise EdgeError(f"cannot connect to {self._peer}: {why}") from None
        except BaseException:
            sock.close()
            raise

    async def call(self, op: str, payload: Payload = b"", **fields: Any) -> Reply:
        """Send a request and return its answer.

        Raises ``EdgeRefused`` with the reason of the server, and ``EdgeError`` if the server is gone or has not
        answered within ``patience_s`` seconds; then nobody knows whether it did what was asked.
        """
        head = messages.encode(payload, **{**fields, "op": op})
        async with self._turn:
            frame = await self._exchange(op, head, payload)
        answer = frame.fields
        if "error" in answer:
            raise EdgeRefused(f"{self._peer} refused {op}: {answer['error']}")
        return Reply(answer, frame.payload)

    async def _exchange(self, op: str, head: bytes, payload: Payload) -> Frame:
        stream = await self._connected()
        why = "it has closed the connection"
        try:
            frame = await within(self._patience_s, self._ask(stream, head, payload))
            if frame is not None:
                return frame
        except asyncio.TimeoutError:
            why = f"no answer within {self._patience_s:g} s"
        except (OSError, EdgeError) as error:
            why = str(error)
        except BaseException:
            self._close()
            raise
        self._close()
        raise EdgeError(f"{op} at {self._peer} failed: {why}")

    @staticmethod
    async def _ask(stream: FrameStream, head: bytes, payload: Payload) -> Frame | None:
        await stream.send(head, payload)
        return await stream.receive()

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    async def close(self) -> None:
        """Close the connection; a call that waits for its answer fails."""
        self._close()
        async with self._turn:
            pass


class Pool:
    """Calls to one server at the same time, each on a ``Client`` of its own; idle connections are used again."""

    def __init__(self, netns_fd: int | None, address: Address, **bounds: Any) -> None:
        self._made: Callable[[], Client] = partial(Client, netns_fd, address, **bounds)
        self._idle: list[Client] = []

    async def call(self, op: str, payload: Payload = b"", **fields: Any) -> Reply:
        """As ``Client.call``, over an idle connection or a new one."""
        client = self._idle.pop() if self._idle else self._made()
        try:
            return await client.call(op, payload, **fields)
        finally:
            if client.is_open:
                self._idle.append(client)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()
