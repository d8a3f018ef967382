from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from experiments.propius.data.endpoint import Client, Pool, Server, serve, within
from experiments.propius.data.messages import EdgeError, EdgeRefused, Frame, Reply, encode
from railyard.errors import ControlError, MachineError

HERE = ("127.0.0.1", 0)
MOST = 1 << 20


async def echo(request: Frame) -> Reply:
    if "refuse" in request.fields:
        raise ControlError("not today")
    await asyncio.sleep(request.fields.get("wait", 0))
    return Reply(request.fields, request.payload)


def with_server(test: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        server = await serve(None, HERE, echo, most_payload=MOST)
        try:
            await test(server)
        finally:
            await server.close()

    asyncio.run(run())


def test_fields_and_payload_come_back() -> None:
    async def test(server: Server) -> None:
        client = Client(None, server.address, most_payload=MOST)
        for size in (0, 1, 65535, MOST):
            payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            reply = await client.call("echo", payload, job=3)
            assert (reply.fields, reply.payload) == ({"op": "echo", "job": 3}, payload)
        await client.close()

    with_server(test)


def test_a_refusal_leaves_the_connection_open() -> None:
    async def test(server: Server) -> None:
        client = Client(None, server.address)
        with pytest.raises(EdgeRefused, match="refused echo: not today"):
            await client.call("echo", refuse=1)
        assert (await client.call("echo")).fields == {"op": "echo"}
        await client.close()

    with_server(test)


def test_calls_of_a_client_wait_for_each_other_and_those_of_a_pool_do_not() -> None:
    meeting: list[Frame] = []

    async def meet(request: Frame) -> Reply:
        meeting.append(request)
        most = len(meeting)
        while len(meeting) < 3 and request.fields["together"]:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.002)
        meeting.clear()
        return Reply({"most": most, "number": request.fields["number"]})

    async def run() -> None:
        server = await serve(None, HERE, meet)
        client, pool = Client(None, server.address), Pool(None, server.address)
        for target, together in ((client, False), (pool, True)):
            replies = await asyncio.gather(*(target.call("meet", number=n, together=together) for n in range(3)))
            assert [reply.fields["number"] for reply in replies] == [0, 1, 2]
            assert max(reply.fields["most"] for reply in replies) == (3 if together else 1)
        await client.close()
        await pool.close()
        await server.close()

    asyncio.run(run())


def test_too_large_a_payload_ends_the_connection() -> None:
    async def test(server: Server) -> None:
        large = Client(None, server.address, most_payload=MOST)
        with pytest.raises(EdgeError, match="failed"):
            await large.call("echo", bytes(MOST + 1))
        assert not large.is_open
        assert (await large.call("echo")).fields == {"op": "echo"}, "over another connection"
        await large.close()
        small = Client(None, server.address, most_payload=9)
        with pytest.raises(EdgeError, match="announces 10 bytes"):
            await small.call("echo", b"x" * 10)

    with_server(test)


def test_noise_ends_its_connection_only() -> None:
    async def test(server: Server) -> None:
        with socket.create_connection(server.address) as noisy:
            noisy.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client = Client(None, server.address)
            assert (await client.call("echo")).fields == {"op": "echo"}
            assert await asyncio.to_thread(noisy.recv, 9) == b""
        await client.close()

    with_server(test)


def test_an_answer_that_breaks_off_is_an_error() -> None:
    async def run() -> None:
        with socket.create_server(HERE) as listener:
            client = Client(None, listener.getsockname(), most_payload=MOST)
            await client.connect()
            call = asyncio.create_task(client.call("echo"))
            await asyncio.sleep(0)
            with listener.accept()[0] as peer:
                peer.sendall(encode(bytes(MOST), op="echo") + bytes(MOST // 10))
                await asyncio.sleep(0.02)
                assert not call.done()
            with pytest.raises(EdgeError, match=r"broke off in the middle of a frame|reset"):
                await call

    asyncio.run(run())


def test_an_error_of_the_machine_in_a_handler_is_not_taken_for_one_of_the_connection() -> None:
    async def full(_: Frame) -> Reply:
        raise OSError(28, "No space left on device")

    async def run() -> list[str]:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(repr(what["exception"])))
        server = await serve(None, HERE, full)
        client = Client(None, server.address)
        with pytest.raises(EdgeError, match="closed"):
            await client.call("write")
        await server.close()
        return told

    assert asyncio.run(run()) == ["OSError(28, 'No space left on device')"]


def test_a_request_whose_connection_ends_is_given_up_if_the_server_cancels() -> None:
    given_up: list[bool] = []

    async def wait(_: Frame) -> Reply:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            given_up.append(True)
            raise
        return Reply({})

    async def run() -> None:
        server = await serve(None, HERE, wait, cancels=True)
        client = Client(None, server.address)
        call = asyncio.create_task(client.call("wait"))
        await asyncio.sleep(0.02)
        assert not given_up
        call.cancel()
        for _ in range(100):
            await asyncio.sleep(0.005)
            if given_up:
                break
        assert given_up
        await server.close()

    asyncio.run(run())


def test_a_server_that_is_slow_or_gone_is_named() -> None:
    async def test(server: Server) -> None:
        hasty = Client(None, server.address, patience_s=0.02)
        with pytest.raises(EdgeError, match=r"no answer within 0\.02 s"):
            await hasty.call("echo", wait=1)
        waiting = Client(None, server.address)
        call = asyncio.create_task(waiting.call("echo", wait=1))
        await asyncio.sleep(0.02)
        await server.close()
        with pytest.raises(EdgeError, match=r"echo at 127\.0\.0\.1:.* failed"):
            await call
        with pytest.raises(EdgeError, match="cannot connect to"):
            await Client(None, server.address).connect()

    with_server(test)


def test_an_address_that_cannot_be_used_is_an_error_of_the_machine() -> None:
    async def test(server: Server) -> None:
        with pytest.raises(MachineError, match=r"no server can listen at 127\.0\.0\.1"):
            await serve(None, server.address, echo)

    with_server(test)


def test_a_cancellation_is_not_lost_when_the_work_has_just_been_done() -> None:
    async def run() -> None:
        async def work() -> int:
            caller.cancel()
            return 1

        caller = asyncio.create_task(within(5, work()))
        with pytest.raises(asyncio.CancelledError):
            await caller

    asyncio.run(run())
