"""The agents' end of the controller's job channel: requests out, answers in; only connecting blocks.

Newline-delimited JSON over a Unix stream socket; each answer carries the ``id`` of its request. What a rank tells
(``alive``, ``moved``) has the ``id`` -1 - rank, and no answer unless the controller refuses it.

The ranks of a process share a channel, which counts the members of a group that are ready: a request or release that
all of them make is one message, with one answer. It goes out with the last of them, or ``HOLD_S`` after the first.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from railyard.errors import ControlError, PeerLost
from railyard.protocol import Decoder, Hop, encode, hops_from
from topos.kernel.relay import connect_unix
from workloads.program import Group
from workloads.rank.paths import paths_by_rank

HOLD_S = 0.05
"""How long a request may wait for those of the other members in the process: the controller shows who is missing."""


class ChannelAnswer(NamedTuple):
    """An answer of the controller to a ``request`` of ``rank``, with those of its paths that are the rank's."""

    rank: int
    request: dict[str, Any]
    fields: dict[str, Any]
    paths: tuple[Hop, ...] = ()

    def check(self) -> None:
        """Raise ``ControlError`` for a refusal, ``PeerLost`` for one because another rank is gone."""
        if not self.fields.get("ok"):
            asked_for = f"{self.request['op']} of group {self.request.get('group')}"
            kind = PeerLost if self.fields.get("kind") == "PeerLost" else ControlError
            raise kind(f"the controller refused {asked_for}: {self.fields.get('error', 'no reason given')}")


@dataclass
class Gathering:
    """Members that make one request: those that wait to be told, with when they asked, and how many have yet to ask."""

    op: str
    fields: dict[str, Any]
    missing: int
    waiting: list[tuple[int, float]] = field(default_factory=list)


class JobChannel:
    """A connection to the controller of job ``job`` for the ``ranks`` of a process; ``groups`` are those of the job.

    ``notify`` may be called from any thread. ``outlives``: the end of the controller is no error; the channel, of one
    rank, is then ``lost`` until ``resume``.
    """

    def __init__(
        self,
        path: str,
        job: str,
        ranks: Sequence[int],
        timeout_s: float,
        groups: Iterable[Group] = (),
        *,
        outlives: bool = False,
    ) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._outlives = outlives
        self.lost = False
        self._acknowledged: dict[str, int] = {}
        """The last request that was acknowledged, by group."""
        self._held: set[tuple[str, int]] = set()
        """The requests that are acknowledged and not released."""
        self._job = job
        self._ranks = ranks
        self._members = {group.name: len(frozenset(ranks).intersection(group.members)) for group in groups}
        """The number of members of each group in this process."""
        self._gathering: dict[tuple[str, str, int | None], Gathering] = {}
        """By operation, group and index."""
        self._rotating: set[str] = set()
        """Groups whose circuits come in slots: a slot may end with the release of one member."""
        self._next_id = 0
        self._open: dict[int, tuple[list[int], dict[str, Any]]] = {}
        """The ranks of each request that is not answered."""
        self._in_slots: dict[int | None, tuple[list[int], dict[str, Any]]] = {}
        """Requests that are answered once per slot, until they are released, and what each rank has told last."""
        self._slot_requests: dict[tuple[int, str, int], int] = {}
        self._decoder = Decoder()
        self._out = bytearray()
        self._sending = threading.Lock()
        self.sock = self._connect()

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._out)

    @property
    def due(self) -> float:
        """When to call ``send_gathered`` (monotonic seconds); infinity if no member waits for others."""
        return min((each.waiting[0][1] + HOLD_S for each in self._gathering.values() if each.waiting), default=math.inf)

    def send_gathered(self, now: float) -> None:
        """Send what members have asked for ``HOLD_S`` ago without the others in the process."""
        for gathering in self._gathering.values():
            if gathering.waiting and now >= gathering.waiting[0][1] + HOLD_S:
                self._ask(gathering)

    def request(self, op: str, rank: int | None = None, **fields: Any) -> None:
        """Ask for ``op`` of a rank (None: that of a channel with one)."""
        rank = self._ranks[0] if rank is None else rank
        group, index = str(fields.get("group", "")), fields.get("index")
        if op == "release" and index is not None:
            self._in_slots.pop(self._slot_requests.pop((rank, group, index), None), None)
            self._held.discard((group, index))
        together = 1 if group in self._rotating else self._members.get(group, 1)
        gathering = self._gathering.setdefault((op, group, index), Gathering(op, fields, together))
        gathering.missing -= 1
        gathering.waiting.append((rank, time.monotonic()))
        if gathering.missing <= 0:
            del self._gathering[op, group, index]
            self._ask(gathering)

    def _ask(self, gathering: Gathering) -> None:
        now, ranks = time.monotonic(), [each for each, _ in gathering.waiting]
        *before, (rank, asked) = gathering.waiting
        self._open[self._next_id] = ranks, {"op": gathering.op, **gathering.fields}
        gathering.waiting = []
        more: dict[str, Any] = {"before": [(each, now - at) for each, at in before]} if before else {}
        if gathering.missing > 0:  # it has waited for others
            more["since"] = now - asked
        line = encode(self._next_id, gathering.op, job=self._job, rank=rank, **more, **gathering.fields)
        self._next_id += 1
        self._send(line)

    def is_open(self, rank: int, group: str, index: int) -> bool:
        """Whether slots may still come as answers to this request of ``rank``: it is not released."""
        return (rank, group, index) in self._slot_requests

    def notify(self, op: str, rank: int, **fields: Any) -> None:
        self._in_slots[-1 - rank] = [rank], {"op": op, **fields}
        self._send(encode(-1 - rank, op, job=self._job, rank=rank, **fields))

    def flush(self) -> None:
        self._send(b"")

    def resume(self) -> None:
        """Connect to the controller that was started in place of the lost one, say what is held, and ask again."""
        self.sock.close()
        self._out.clear()
        self._decoder, asked = Decoder(), [each for _, each in self._open.values() if each["op"] == "request"]
        self._open.clear()
        self.sock = self._connect()
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

    def receive(self) -> list[ChannelAnswer]:
        """Return the answers that have arrived, refusals too; ``ControlError`` for a closed channel."""
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
            return [answer for fields in self._decoder.feed(data) for answer in self._match(fields)]
        except ValueError:
            raise ControlError("the controller sent something that is not JSON on its job channel") from None

    def _match(self, fields: dict[str, Any]) -> list[ChannelAnswer]:
        """The answer for each rank that asked; none for a slot whose request was released meanwhile."""
        number = fields.get("id", "none")
        ranks, request = self._open.pop(number, None) or self._in_slots.get(number) or ([], None)
        if request is None:
            if "slot_window" in fields:
                return []
            if number is None:
                raise ControlError(f"the controller refused a message: {fields.get('error', 'no reason given')}")
            raise ControlError(f"the controller sent an answer that belongs to no request: {str(fields)[:200]}")
        if "slot_window" in fields:
            self._in_slots[number] = ranks, request
            self._slot_requests |= {(rank, request["group"], request["index"]): number for rank in ranks}
        elif fields.get("ok") and request["op"] == "request":
            self._acknowledged[request["group"]] = request["index"]
            self._held.add((request["group"], request["index"]))
        if fields.get("rotates"):
            self._rotating.add(request["group"])
        paths = paths_by_rank(hops_from(fields.get("paths", ())))
        return [ChannelAnswer(rank, request, fields, tuple(paths.get(rank, ()))) for rank in ranks]

    def _connect(self) -> socket.socket:
        try:
            sock = connect_unix(self._path, self._timeout_s, self._timeout_s)
        except OSError as error:
            raise ControlError(f"the controller does not answer on its job channel: {error}") from None
        sock.setblocking(False)
        return sock

    def close(self) -> None:
        self.sock.close()
