"""The agent's end of the controller's job channel: requests out, answers in; only connecting blocks.

Newline-delimited JSON over a Unix stream socket; each answer carries the ``id`` of its request. A message without
``id`` (``alive``, ``moved``) has no answer, unless the controller refuses it.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from railyard.errors import ControlError, PeerLost
from railyard.protocol import Decoder, encode

_RETRY_S = 0.05


class JobChannel:
    """A connection to the controller of job ``job`` for rank ``rank``. ``notify`` may be called from any thread.

    ``outlives``: the end of the controller is no error; the channel is then ``lost`` until ``resume``.
    """

    def __init__(self, path: str, job: str, rank: int, timeout_s: float, *, outlives: bool = False) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._outlives = outlives
        self.lost = False
        self._acknowledged: dict[str, int] = {}
        """The last request that was acknowledged, by group."""
        self._held: set[tuple[str, int]] = set()
        """The requests that are acknowledged and not released."""
        self._job = job
        self._rank = rank
        self._next_id = 0
        self._open: dict[int, dict[str, Any]] = {}
        self._slot_requests: dict[tuple[str, int], tuple[int, dict[str, Any]]] = {}
        """Requests that are answered once per slot, until they are released."""
        self._decoder = Decoder()
        self._out = bytearray()
        self._sending = threading.Lock()
        self.sock = _connect(path, timeout_s)
        self.sock.setblocking(False)

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._out)

    def request(self, op: str, **fields: Any) -> None:
        self._open[self._next_id] = {"op": op, **fields}
        if op == "release":
            self._slot_requests.pop((fields["group"], fields["index"]), None)
            self._held.discard((fields["group"], fields["index"]))
        line = encode(self._next_id, op, job=self._job, rank=self._rank, **fields)
        self._next_id += 1
        self._send(line)

    def is_open(self, group: str, index: int) -> bool:
        """Whether slots may still come as answers to this request of ``group``: it is not released."""
        return (group, index) in self._slot_requests

    def notify(self, op: str, **fields: Any) -> None:
        self._send(encode(None, op, job=self._job, rank=self._rank, **fields))

    def flush(self) -> None:
        self._send(b"")

    def resume(self) -> None:
        """Connect to the controller that was started in place of the lost one, say what is held, and ask again."""
        self.sock.close()
        self._out.clear()
        self._decoder, asked = Decoder(), [each for each in self._open.values() if each["op"] == "request"]
        self._open.clear()
        self.sock = _connect(self._path, self._timeout_s)
        self.sock.setblocking(False)
        self.lost = False
        self.request("resume", acknowledged=self._acknowledged, held=sorted(self._held))
        for each in asked:
            self.request(**each)

    def _send(self, more: bytes) -> None:
        try:
            with self._sending:
                self._out += more
                while self._out:
                    del self._out[: self.sock.send(self._out)]
        except BlockingIOError:
            return
        except OSError as error:
            if not self._outlives:
                raise ControlError(f"the controller is gone: {error.strerror}") from None

    def receive(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the answers that have arrived, each as (request, answer).

        Raises ``ControlError`` for a refusal or a closed channel, ``PeerLost`` for a refusal because another rank is
        gone.
        """
        sentence = "the controller closed the job channel"
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError as error:
            data, sentence = b"", f"the controller is gone: {error.strerror}"
        if not data and not self._outlives:
            raise ControlError(sentence)
        self.lost = not data
        try:
            answers = [self._match(answer) for answer in self._decoder.feed(data)]
            return [pair for pair in answers if pair is not None]
        except ValueError:
            raise ControlError("the controller sent something that is not JSON on its job channel") from None

    def _match(self, answer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The request of an answer; None for a slot whose request was released meanwhile."""
        number = answer.get("id", -1)
        request = self._open.pop(number, None)
        if "slot_window" in answer:
            key = answer["group"], answer["index"]
            if request is not None:
                self._slot_requests[key] = number, request
            elif key not in self._slot_requests:
                return None
            return self._slot_requests[key][1], answer
        if request is None:
            request = next((asked for key, asked in self._slot_requests.values() if key == number), None)
        if request is None and number is None:
            raise ControlError(f"the controller refused a message: {answer.get('error', 'no reason given')}")
        if request is None:
            raise ControlError(f"the controller sent an answer that belongs to no request: {str(answer)[:200]}")
        if not answer.get("ok"):
            asked_for = f"{request['op']} of group {request.get('group')}"
            kind = PeerLost if answer.get("kind") == "PeerLost" else ControlError
            raise kind(f"the controller refused {asked_for}: {answer.get('error', 'no reason given')}")
        if request["op"] == "request":
            self._acknowledged[request["group"]] = request["index"]
            self._held.add((request["group"], request["index"]))
        return request, answer

    def close(self) -> None:
        self.sock.close()


def _connect(path: str, timeout_s: float) -> socket.socket:
    end = time.monotonic() + timeout_s
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(path)
            return sock
        except OSError as error:
            sock.close()
            if time.monotonic() + _RETRY_S > end:
                raise ControlError(f"the controller does not answer on its job channel: {error}") from None
            time.sleep(_RETRY_S)
