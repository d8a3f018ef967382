"""A live controller with switches in memory behind its REST interface, on a real socket."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from core_world import World
from fake_clock import RunningClock

from controllers.northbound import http_server, rest
from railyard.timeline import Event
from topos.plan import FabricPlan

TOKEN = "s3cret"


class Rest:
    """A controller with switches in memory, over REST with ``token``; ``record`` gets its events."""

    def __init__(
        self, plan: FabricPlan, record: Callable[[Event], None] | None = None, token: str | None = TOKEN
    ) -> None:
        self.sent = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.clock = RunningClock()
        world = World(plan, self.clock, record)
        for switch in plan.switches:
            world.join(switch.dpid)
        assert world.ready.wait(5)
        self.server, hosts = http_server.listen("127.0.0.1:0")
        self.server.set_app(rest.make_app(world.core, TOKEN, hosts))
        threading.Thread(target=self.server.serve, daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens."""
        host, port = self.server.server_address[:2]
        return f"{host!s}:{port}"

    def ask(self, verb: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Status and answer of a call; a text is sent as it is, and any other body as JSON."""
        host, port = self.server.server_address[:2]
        connection = http.client.HTTPConnection(str(host), int(port), timeout=20)
        sent = self.sent | ({} if body is None else {"Content-Type": "application/json"})
        sent |= {key.replace("_", "-"): value for key, value in headers.items()}
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        try:
            connection.request(verb, path, data, sent)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        return response.status, json.loads(content) if content else None

    def get(self, path: str) -> Any:
        status, body = self.ask("GET", path)
        assert status == 200, body
        return body

    def close(self) -> None:
        self.server.socket.shutdown(socket.SHUT_RDWR)
        self.server.server_close()
        self.clock.stop()
