"""The agent's end of the connection to the user's script that drives its rank, and the values that the script gives.

The script's process (``workloads.pytorch.rail_client``) sends lines of JSON, with a descriptor of shared memory for
every call that a rail carries:

- ``{"ready": true}``: it stands before its recorded step; the answer ``{"go": true}`` comes with the first step.
- ``{"call": n, ...}``: communication n of the rank's step. On a rail, with the fields of ``ScriptCall``; its memory
  holds the input, and the result when ``{"done": n}`` comes. Without fields the script carries it over the front-end
  network itself, until ``{"over": n}``.
- ``{"step": k}``: the step is over on this rank. ``{"bye": true}``: the script ended well, and with it the rank.

``{"error": sentence}`` comes before the agent ends; an end of the connection ends the process of the script.
"""

from __future__ import annotations

import array
import contextlib
import json
import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from railyard.errors import AgentError, ConfigError
from railyard.validation import from_plain
from workloads.agent.config import SCRIPT_READY_S, AgentConfig
from workloads.agent.transport.payload import Values
from workloads.program import Collective
from workloads.rank.actions import Action
from workloads.rank.in_flight import InFlight
from workloads.rank.machine import RankMachine
from workloads.rank.tensors import Floats, Layout, Piece, ScriptCall

MOST_LINE_BYTES = 1 << 20
_LAYOUTS = 1_000
"""Layouts that are kept for the next step; those of uneven all-to-alls differ in each."""


class ScriptChannel:
    """The socket at which the script of ``rank`` calls, at ``path``; one script, once."""

    def __init__(self, path: str, rank: int) -> None:
        self._rank, self._path = rank, Path(path)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connected = False
        self._received = b""
        self._fds: deque[int] = deque()
        try:
            self._path.unlink(missing_ok=True)
            self._sock.bind(path)
            self._sock.listen(1)
        except OSError as error:
            self._sock.close()
            raise AgentError(f"the agent of rank {rank} cannot listen for its script at {path}: {error}") from None

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> Iterator[dict[str, Any] | None]:
        """The messages that have come; None at the end of the connection."""
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
            self._fds.extend(array.array("i", fds))
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            try:
                yield dict(json.loads(line))
            except (ValueError, TypeError):
                raise AgentError(f"the script of rank {self._rank} sent a line that is no message") from None
        if not data:
            yield None
        if len(self._received) > MOST_LINE_BYTES:
            raise AgentError(f"the script of rank {self._rank} sent a line of more than {MOST_LINE_BYTES} bytes")

    def memory(self) -> int:
        """The memory that came with the message received last."""
        if not self._fds:
            raise AgentError(f"the script of rank {self._rank} sent a call without its memory")
        return self._fds.popleft()

    def tell(self, **fields: Any) -> None:
        """Send one message; a script that is gone is noticed by the end of its connection."""
        if self._connected:
            with contextlib.suppress(OSError):
                self._sock.sendall(json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        self._sock.close()
        self._path.unlink(missing_ok=True)
        while self._fds:
            os.close(self._fds.popleft())


class Script(Values):
    """The script of one rank: it tells the machine how far the rank has come, and is where values come from and go.

    ``next_event``: when the script must have come to its recorded step (infinity: it has).
    """

    def __init__(self, config: AgentConfig) -> None:
        super().__init__(config)
        self._rank, self._steps = config.rank, config.steps
        self._communications = tuple(config.program.communications(config.rank))
        self._numbers = {op.id: number for number, op in enumerate(self._communications)}
        self._domains = {name: group.domain for name, group in config.program.groups.items()}
        self._channel = ScriptChannel(config.script, config.rank)
        self._step = config.incarnation.first_step if config.incarnation is not None else 0
        self._called = 0
        """Number of communications of this step that were called, without a gap."""
        self._calls: dict[tuple[int, int], tuple[ScriptCall, int] | None] = {}
        """Calls by step and operation, each with its memory; None for those that the script carries itself."""
        self._own: dict[int, list[int]] = {}
        """By number of a communication, the steps in which the script began to carry it itself."""
        self._layouts: dict[tuple[ScriptCall, int], Layout] = {}
        self.ready = self.ended = self.lost = False
        """Whether the script stands before its recorded step, has ended well, and is told no more."""
        self.next_event = time.monotonic() + SCRIPT_READY_S

    def fileno(self) -> int:
        return self._channel.fileno()

    # -- what the script says ------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Raise ``AgentError`` for a script that does not come to its recorded step in time."""
        if now >= self.next_event:
            raise AgentError(
                f"the agent of rank {self._rank} waited for its script for {SCRIPT_READY_S:g} s, which has not come "
                "to its recorded step; see its output, or have fewer steps before it"
            )

    def begin(self) -> None:
        self._channel.tell(go=True)

    def receive(self, machine: RankMachine, execute: Callable[[list[Action]], object]) -> bool:
        """Read what has come, and ``execute`` what the machine does with it; False at the end of the connection."""
        for message in self._channel.receive():
            if message is None:
                if not (self.ended or self.lost or machine.finished):
                    raise AgentError(f"the script of rank {self._rank} ended in step {self._step}{self._missing()}")
                return False
            if self.lost:
                continue
            execute(self._take(message, machine, time.monotonic()))
        return True

    def _take(self, message: dict[str, Any], machine: RankMachine, now: float) -> list[Action]:
        if "ready" in message:
            self.ready, self.next_event = True, math.inf
        elif "bye" in message:
            self.ended = True
        elif not machine.begun:
            raise AgentError(f"the script of rank {self._rank} did not wait for its first step")
        elif "call" in message:
            self._call(message)
            while self._called < len(self._communications) and self._key(self._called) in self._calls:
                self._called += 1
            last = self._communications[self._called - 1].id if self._called else 0
            return machine.come_to(self._step, last, now)
        elif "over" in message:
            number = self._number(message["over"])
            if not self._own.get(number):
                raise AgentError(
                    f"the script of rank {self._rank} ended communication {number}, which it has not begun"
                )
            return machine.passed(self._own[number].pop(0), self._communications[number].id, now)
        elif "step" in message:
            if missing := self._missing():
                raise AgentError(f"the script of rank {self._rank} ended step {self._step}{missing}")
            self._step, self._called = self._step + 1, 0
            return machine.come_to(self._step, 0, now)
        return []

    def _key(self, number: int) -> tuple[int, int]:
        return self._step, self._communications[number].id

    def _number(self, number: Any) -> int:
        if not isinstance(number, int) or not 0 <= number < len(self._communications):
            raise AgentError(
                f"the script of rank {self._rank} made call {number!r} in step {self._step}; its recorded step has "
                f"{len(self._communications)}, from 0"
            )
        return number

    def _missing(self) -> str:
        if self._called == len(self._communications):
            return ""
        op = self._communications[self._called]
        return f" without its communication {self._called} ({op.name} in group {op.group})"

    def _call(self, message: dict[str, Any]) -> None:
        """Take in a call, and compare it with the record."""
        number = self._number(message["call"])
        op = self._communications[number]
        what = f"call {number} of rank {self._rank} in step {self._step}"
        if self._key(number) in self._calls or number < self._called:
            raise AgentError(f"{what} was made twice")
        if self._step >= self._steps:
            raise AgentError(f"{what} comes after the last of its {self._steps} steps")
        on_rail = self._domains[op.group] != "front-end"
        if on_rail is not ("kind" in message):
            networks = ("a rail", "the front-end network")
            asked, recorded = networks if not on_rail else networks[::-1]
            raise AgentError(f"{what} asks for {asked}, and {op.name} was recorded on {recorded}")
        if not on_rail:
            self._calls[self._key(number)] = None
            self._own.setdefault(number, []).append(self._step)
            return
        memory = self._channel.memory()
        try:
            call = from_plain(ScriptCall, {k: v for k, v in message.items() if k != "call"}, "a call")
        except ConfigError as error:
            raise AgentError(f"{what} is refused: {error}") from None
        self._calls[self._key(number)] = call, memory
        kind = op.kind if isinstance(op, Collective) else type(op).__name__.lower()
        if call.kind != kind:
            raise AgentError(f"{what} is a {call.kind}, and its recorded step has a {kind} there ({op.name})")

    # -- the values ----------------------------------------------------------------------------------

    def _of(self, in_flight: InFlight) -> tuple[ScriptCall, int]:
        entry = self._calls[in_flight.step, in_flight.op.id]
        assert entry is not None
        return entry

    def layout(self, in_flight: InFlight) -> Layout:
        call, schedule = self._of(in_flight)[0], in_flight.schedule
        key = call, id(schedule)
        if key not in self._layouts:
            if len(self._layouts) == _LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = call.layout(schedule, in_flight.group.members.index(self._rank))
        return self._layouts[key]

    def contribution(self, in_flight: InFlight) -> Floats:
        """The buffer with the input of the script, 0 elsewhere."""
        (call, memory), layout = self._of(in_flight), in_flight.layout
        assert layout is not None
        in_flight.add = call.add
        buffer = np.zeros(layout.words, dtype=np.float32)
        self._move(os.preadv, in_flight, memory, buffer, layout.input)
        return buffer

    def done(self, in_flight: InFlight) -> None:
        """Give the result to the script, unless it has carried the communication itself."""
        entry = self._calls.pop((in_flight.step, in_flight.op.id))
        if entry is None:
            return
        (call, memory), buffer, layout = entry, in_flight.buffer, in_flight.layout
        assert buffer is not None and layout is not None
        call.finish(buffer, len(in_flight.group.members))
        self._move(os.pwritev, in_flight, memory, buffer, layout.output)
        os.close(memory)
        self._channel.tell(done=self._numbers[in_flight.op.id])

    def _move(
        self, move: Callable[..., int], in_flight: InFlight, memory: int, buffer: Floats, pieces: tuple[Piece, ...]
    ) -> None:
        """Read pieces of the script's memory into the buffer, or write them."""
        room = buffer.data.cast("B") if len(buffer) else memoryview(b"")
        for offset, start, size in pieces:
            done = 0
            while done < size:
                count = move(memory, [room[start + done : start + size]], offset + done)
                if count == 0:
                    raise AgentError(
                        f"the memory of the script of rank {self._rank} is too small for {in_flight.op.name}"
                    )
                done += count

    def wrong_elements(self, in_flight: InFlight) -> int | None:
        """None: nobody but the script knows what is right."""
        return None

    def recycle(self, in_flight: InFlight) -> None:
        """Nothing is prepared for the next step."""

    # -- ending --------------------------------------------------------------------------------------

    def fail(self, sentence: str) -> None:
        """Tell the script why its agent ends; later messages of it are not heeded."""
        if not self.lost:
            self._channel.tell(error=sentence)
        self.lost = True

    def close(self) -> None:
        self._channel.close()
