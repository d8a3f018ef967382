"""A client of the job channel for scripts and tests: blocking calls."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from controllers.circuits.ocs import UpdateMode
from controllers.engine.jobs import Job
from railyard.errors import ControlError
from railyard.protocol import Decoder, Hop, encode, hops_from
from topos.kernel.relay import connect_unix


class ChannelClient:
    """A connection to the job channel whose calls wait for their answers.

    A refusal, or no answer within ``timeout_s``, raises ``ControlError``: without an ack nothing may be sent.
    """

    def __init__(self, path: Path | str, timeout_s: float = 30.0) -> None:
        self._timeout_s = timeout_s
        self._decoder = Decoder()
        self._answers: list[dict[str, Any]] = []
        self._last_id = 0
        try:
            self._socket = connect_unix(path, timeout_s)
        except OSError as error:
            raise ControlError(f"no controller listens at {path} ({error.strerror or error}); start one") from error

    def __enter__(self) -> ChannelClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """A descriptor that is readable when the answer to ``send`` is there."""
        return self._socket.fileno()

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request and return its answer; ``ControlError`` on a refusal, time-out or broken connection."""
        self.send(op, **fields)
        return self.answer(op)

    def send(self, op: str, **fields: Any) -> None:
        """Send one request, whose ``answer`` is taken later."""
        self._last_id += 1
        try:
            self._socket.sendall(encode(self._last_id, op, **fields))
        except OSError as error:
            raise ControlError(f"the connection to the controller broke during {op}: {error}") from error

    def answer(self, op: str) -> dict[str, Any]:
        """The answer to the last request, which was ``op``; errors are those of ``call``."""
        try:
            answer = self._wait(self._last_id)
        except TimeoutError:
            raise ControlError(f"the controller did not answer {op} within {self._timeout_s:g} s") from None
        except OSError as error:
            raise ControlError(f"the connection to the controller broke during {op}: {error}") from error
        if not answer.get("ok"):
            raise ControlError(str(answer.get("error", "the controller refused and did not say why")))
        return answer

    def _wait(self, request_id: int) -> dict[str, Any]:
        while True:
            for answer in self._answers:
                if answer.get("id") in (request_id, None):
                    self._answers.remove(answer)
                    return answer
            data = self._socket.recv(1 << 18)
            if not data:
                raise ControlError("the controller closed the connection; see its log")
            self._answers += self._decoder.feed(data)

    def register(self, job: Job, policy: str) -> None:
        self.call("register", job=job, policy=policy)

    def request(self, job: str, rank: int, group: str, index: int) -> tuple[Hop, ...]:
        """Request circuits and wait for the ack; the paths of the ack."""
        answer = self.call("request", job=job, rank=rank, group=group, index=index)
        return hops_from(answer["paths"])

    def rewire(
        self,
        switch: str,
        circuits: Iterable[tuple[int, int]],
        update: UpdateMode = "update",
        delay_s: float | None = None,
    ) -> None:
        """Rewire one switch; returns when the switch is tuned. ``delay_s`` None: the delay of the last job."""
        self.call("rewire", switch=switch, circuits=list(circuits), update=update, delay_s=delay_s)
