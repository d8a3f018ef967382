"""The agent's end of the connection to the user's script that drives its rank, and the values that the script gives.

The script's process (``workloads.pytorch.rail_client``) sends lines of JSON, with a descriptor of shared memory for
every call that a rail carries:

- ``{"ready": true}``: it stands before its recorded step; the answer ``{"go": true}`` comes with the first step.
- ``{"call": n, ...}``: communication n of the rank's step. On a rail, with the fields of ``ScriptCall``; its memory
  holds the input, and the result when ``{"done": n}`` comes. Without these the script carries it over the front-end
  network itself, from the moment ``at`` (monotonic seconds) until ``{"over": n}``.
- ``{"step": k}``: the step is over on this rank. ``{"bye": true}``: the script ended well, and with it the rank.

``{"error": sentence}`` comes before the agent ends; an end of the connection ends the process of the script.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np

from railyard.errors import AgentError, ConfigError, PeerLost
from railyard.validation import from_plain
from workloads.agent.config import AgentConfig
from workloads.agent.transport.payload import Values
from workloads.program import Collective
from workloads.rank.actions import Action
from workloads.rank.in_flight import InFlight
from workloads.rank.machine import RankMachine
from workloads.rank.tensors import Floats, Layout, Piece, ScriptCall

MOST_LINE_BYTES = 1 << 20


class ScriptChannel:
    """The socket at ``path`` at which the script calls once; ``name`` is that of the script, for errors."""

    def __init__(self, path: str, name: str) -> None:
        self._name, self._path = name, Path(path)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connected = False
        self._received = b""
        self._memories: deque[int] = deque()

    def listen(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
            self._sock.bind(str(self._path))
            self._sock.listen(1)
        except OSError as error:
            raise AgentError(f"cannot listen for {self._name} at {self._path}: {error.strerror or error}") from None

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> Iterator[dict[str, Any]]:
        """The messages that have come: at the end of the connection an empty one."""
        if not self._connected:
            listener, (self._sock, _) = self._sock, self._sock.accept()
            listener.close()
            self._connected = True
            return
        try:
            data, ancillary, _, _ = self._sock.recvmsg(1 << 16, socket.CMSG_SPACE(64), socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, ancillary = b"", []
        for _, _, fds in ancillary:
            self._memories.extend(array.array("i", fds))
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > MOST_LINE_BYTES:
            raise AgentError(f"{self._name} sent a line of more than {MOST_LINE_BYTES} bytes")
        try:
            yield from [dict(json.loads(line)) for line in lines]
        except (ValueError, TypeError):
            raise AgentError(f"{self._name} sent a line that is no message") from None
        if not data:
            yield {}

    def memory(self) -> int:
        """The memory that came with the call received last."""
        if not self._memories:
            raise AgentError(f"{self._name} sent a call without its memory")
        return self._memories.popleft()

    def tell(self, **fields: Any) -> None:
        """Send one message; a script that is gone is noticed by the end of its connection."""
        if self._connected:
            with contextlib.suppress(OSError):
                self._sock.sendall(json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        self._sock.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


class Script(Values):
    """The script of one rank: it tells the machine how far the rank has come, and is where values come from and go."""

    def __init__(self, config: AgentConfig) -> None:
        super().__init__(config)
        self._name, self._steps = f"the script of rank {config.rank}", config.steps
        self._ended = AgentError if config.incarnation is None else PeerLost
        """Of a job that outlives its members, scripts end together where one does: the rank itself has not failed."""
        self._communications = tuple(config.program.communications(config.rank))
        self._numbers = {op.id: number for number, op in enumerate(self._communications)}
        self.channel = ScriptChannel(config.script, self._name)
        self._step = config.incarnation.first_step if config.incarnation is not None else 0
        self._called = 0
        """Number of communications of this step that were called, without a gap."""
        self._calls: dict[tuple[int, int], tuple[ScriptCall, int] | None] = {}
        """Calls by step and operation, each with its memory; None for those that the script carries itself."""
        self._own: dict[int, int] = {}
        """The steps in which the script began to carry communications itself, by number."""
        self.ready = self.ended = self.gone = self.lost = False
        """Whether the script stands before its recorded step, ended well, has closed its end, and is heeded no more."""

    def fail(self, sentence: str) -> None:
        """Tell the script why its agent ends; what it says from now on is not heeded."""
        self.channel.tell(error=sentence)
        self.lost = True

    def receive(self, machine: RankMachine, execute: Callable[[list[Action], float], object]) -> None:
        """Read what has come, and ``execute`` what the machine does with it."""
        for message in self.channel.receive():
            now = time.monotonic()
            self.gone = self.gone or not message
            if not self.lost:
                execute(self._take(message, machine, now), now)

    def _take(self, message: dict[str, Any], machine: RankMachine, now: float) -> list[Action]:
        if "ready" in message:
            self.ready = True
        elif "bye" in message:
            self.ended = True
        elif not message:
            if not (self.ended or machine.finished):
                where = f"in step {self._step}{self._missing()}" if self.ready else "before its recorded step"
                raise self._ended(f"{self._name} ended {where}")
        elif not machine.begun:
            raise AgentError(f"{self._name} did not wait for its first step")
        elif "call" in message:
            at = message.pop("at", now)
            self._call(message)
            now = min(now, at) if isinstance(at, float) else now
            while self._called < len(self._numbers) and self._key(self._called) in self._calls:
                self._called += 1
            return machine.come_to(self._step, self._communications[self._called - 1].id if self._called else 0, now)
        elif "over" in message:
            number = self._number(message["over"])
            if number not in self._own:
                raise AgentError(f"{self._name} ended call {number}, which it has not begun")
            return machine.passed(self._own.pop(number), self._communications[number].id, now)
        elif "step" in message:
            if missing := self._missing():
                raise AgentError(f"{self._name} ended step {self._step}{missing}")
            self._step, self._called = self._step + 1, 0
            return machine.come_to(self._step, 0, now)
        return []

    def _key(self, number: int) -> tuple[int, int]:
        return self._step, self._communications[number].id

    def _number(self, number: Any) -> int:
        if not isinstance(number, int) or not 0 <= number < len(self._numbers):
            raise AgentError(
                f"{self._name} made call {number!r} in step {self._step}; its record has {len(self._numbers)}, from 0"
            )
        return number

    def _missing(self) -> str:
        if self._called == len(self._numbers):
            return ""
        op = self._communications[self._called]
        return f" without its communication {self._called} ({op.name} in group {op.group})"

    def _call(self, message: dict[str, Any]) -> None:
        """Take in a call, and compare it with the record."""
        number = self._number(message.pop("call"))
        op, key = self._communications[number], self._key(number)
        call_words = f"call {number} of {self._name} in step {self._step}"
        if key in self._calls or number < self._called:
            raise AgentError(f"{call_words} was made twice")
        on_rail = self._config.program.groups[op.group].domain != "front-end"
        if bool(message) is not on_rail:
            network = "a rail" if on_rail else "the front-end network"
            raise AgentError(f"{call_words} must be on {network}, where {op.name} was recorded")
        if not on_rail:
            self._calls[key], self._own[number] = None, self._step
            return
        try:
            call = from_plain(ScriptCall, message, "a call")
        except ConfigError as error:
            raise AgentError(f"{call_words} is refused: {error}") from None
        self._calls[key] = call, self.channel.memory()
        kind = op.kind if isinstance(op, Collective) else type(op).__name__.lower()
        if call.kind != kind or self._step >= self._steps:
            there = f"its record has {kind} there ({op.name})" if self._step < self._steps else "no step is left"
            raise AgentError(f"{call_words} is {call.kind}, and {there}")

    def layout(self, in_flight: InFlight) -> Layout:
        call, _ = self._of(in_flight)
        return call.layout(in_flight.schedule, in_flight.group.members.index(self._config.rank))

    def _of(self, in_flight: InFlight) -> tuple[ScriptCall, int]:
        entry = self._calls[in_flight.step, in_flight.op.id]
        assert entry is not None
        return entry

    def contribution(self, in_flight: InFlight) -> Floats:
        """The buffer with the input of the script, 0 elsewhere.

        It is the call's memory itself where input and result fill it, and the script cannot take any of that away.
        """
        (call, memory), layout = self._of(in_flight), in_flight.layout
        assert layout is not None
        in_flight.add = call.add
        if layout.whole and fcntl.fcntl(memory, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            self._check_size(memory, call.bytes)
            return np.frombuffer(mmap(memory, call.bytes), dtype=np.float32)
        buffer = np.zeros(layout.words, dtype=np.float32)
        self._move(os.preadv, memory, buffer, layout.input)
        return buffer

    def done(self, in_flight: InFlight) -> None:
        """Give the result to the script, unless it has carried the communication itself."""
        entry = self._calls.pop((in_flight.step, in_flight.op.id))
        if entry is not None:
            (call, memory), buffer, layout = entry, in_flight.buffer, in_flight.layout
            assert buffer is not None and layout is not None
            call.finish(buffer, len(in_flight.group.members))
            if buffer.base is None:  # else it is that memory
                self._move(os.pwritev, memory, buffer, layout.output)
            os.close(memory)
            self.channel.tell(done=self._numbers[in_flight.op.id])

    def _move(self, move: Callable[..., int], memory: int, buffer: Floats, pieces: tuple[Piece, ...]) -> None:
        """Read pieces of the script's memory into the buffer, or write them."""
        for offset, start, size in pieces:
            self._check_size(memory, offset + size)
            move(memory, [buffer.data.cast("B")[start : start + size]], offset)

    def _check_size(self, memory: int, size: int) -> None:
        if os.fstat(memory).st_size < size:
            raise AgentError(f"the memory of a call of {self._name} ends before byte {size}")

    def wrong_elements(self, in_flight: InFlight) -> int | None:
        """None: the script alone knows what is right."""
        return None

    def recycle(self, in_flight: InFlight) -> None:
        """Nothing is prepared for the next step."""
