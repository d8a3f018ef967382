"""The loop of an agent process, which runs the agents of its ranks in turn.

A process for each rank would leave much of a processor to the changes from one to the other. All share a channel to the
controller, a socket to the agent launcher and the heartbeats; failures of a rank stay its own. Sockets belong to the
network of the rank's host, into which the thread moves to make them.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import itertools
import json
import math
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from railyard.errors import AgentError, ControlError, PeerLost, RailyardError
from railyard.loop import READ, WRITE, Poller
from railyard.protocol import Decoder
from topos.kernel.namespaces import enter
from workloads.agent.agent import Agent, Stopped, Wait
from workloads.agent.config import AgentConfig
from workloads.agent.heartbeat import Heartbeat
from workloads.agent.job_channel import JobChannel
from workloads.rank.schedule_facts import ScheduleFacts

_LONGEST_TURN_S = 0.1
"""Agents that are due have to wait for a next turn after this: the heartbeats ask whether the loop goes on."""
KILLED = -9
"""Exit status of a rank that is killed without its process."""
_SENTENCE_LENGTH = 5000
"""Characters of an error of an agent, each of up to 12 bytes of JSON; a report must fit into that of the launcher."""


class LauncherChannel:
    """The agents' end of their socket to the agent launcher: reports out, orders in, lines of JSON."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self._orders = Decoder()

    def fileno(self) -> int:
        return self._sock.fileno()

    def report(self, rank: int, **fields: Any) -> None:
        """Send one line of JSON about ``rank`` to the agent launcher; may be called from any thread."""
        with self._sending, contextlib.suppress(BrokenPipeError):  # it is gone, which the loop reads
            self._sock.sendall(json.dumps({"rank": rank, **fields}, separators=(",", ":")).encode() + b"\n")

    def report_error(self, rank: int, sentence: str, *, consequence: bool) -> None:
        if len(sentence) > _SENTENCE_LENGTH:
            sentence = sentence[:_SENTENCE_LENGTH] + "..."
        self.report(rank, error=sentence, consequence=consequence)

    def receive(self) -> list[dict[str, Any]]:
        """The orders that have arrived; a closed socket is the order to stop."""
        try:
            data = self._sock.recv(1 << 16)
        except ConnectionResetError:  # the launcher ended without reading all that was reported
            data = b""
        return [*self._orders.feed(data), *([] if data else [{"stop": True}])]


@dataclass(eq=False)
class Running:
    """An agent under way: its ``course``, and the time at which it goes on at the latest."""

    rank: int
    agent: Agent
    course: Wait[None]
    due: float = 0.0

    def fileno(self) -> int:
        return self.agent.fileno()


class AgentLoop:
    """Runs the agents of ``configs``, which are of one job.

    ``networks`` are descriptors of their hosts' namespaces, in the order of ``configs``, the first of which this thread
    is in already; none: it stays where it is. ``control`` is a stream socket to the agent launcher.
    """

    def __init__(
        self,
        configs: Sequence[AgentConfig],
        networks: Sequence[int],
        control: socket.socket,
        facts: ScheduleFacts | None = None,
    ) -> None:
        self._configs = configs
        self._poller = Poller()
        self._launcher = LauncherChannel(control)
        self._poller.watch(self._launcher, READ)
        self._channel: JobChannel | None = None
        self._unreachable: ControlError | None = None
        self._running: dict[int, Running] = {}
        self._halted: set[int] = set()
        self._network = networks[0] if networks else -1
        self._times: list[tuple[float, int, Running]] = []
        """A heap of the times of agents, with such as they have no more."""
        self._tie = itertools.count()
        self._used_s = 0.0
        self._at_work = configs[0].rank
        self._status = 0
        for config, network in zip(configs, networks or [-1] * len(configs), strict=True):
            report, move = partial(self._launcher.report, config.rank), partial(self._enter, network)
            agent = Agent(config, report, self._connect, facts, move)
            self._running[config.rank] = running = Running(config.rank, agent, agent.run())
            self._poller.watch(running, READ)
            self._remember(running)

    def run(self) -> int:
        """Run the agents to their ends; the exit status of the last one."""
        first = self._configs[0]
        heartbeat = None if first.incarnation is not None else Heartbeat(self._beat, first.heartbeat_s)
        if heartbeat is not None:
            self._poller.watch(heartbeat, READ)
        gc.disable()  # until "go": what is planned stays, and looking through it takes longer than planning it
        try:
            self._used_s = time.thread_time()
            while self._running:
                self._turn(heartbeat)
        finally:
            gc.enable()
            if heartbeat is not None:
                heartbeat.stop()
            if self._channel is not None:
                self._channel.close()
            self._poller.close()
        return self._status

    def _enter(self, network: int) -> None:
        if network != self._network:
            enter(network)
            self._network = network

    def _connect(self) -> JobChannel:
        """The channel to the controller that all ranks share; ``ControlError`` for all if that does not answer."""
        if self._unreachable is not None:
            raise self._unreachable
        if self._channel is None:
            first, ranks = self._configs[0], [config.rank for config in self._configs]
            assert first.channel is not None
            groups, outlives = first.program.groups.values(), first.outlives_controller
            timeout_s = first.ack_timeout_s
            try:
                self._channel = JobChannel(first.channel, first.job, ranks, timeout_s, groups, outlives=outlives)
            except ControlError as error:
                self._unreachable = error
                raise
        return self._channel

    def _beat(self, answers: int) -> None:
        for rank in list(self._running)[:1]:
            self._launcher.report(rank, alive=answers, every_s=self._configs[0].heartbeat_s, at_work=self._at_work)

    # -- a turn --------------------------------------------------------------------------------------

    def _turn(self, heartbeat: Heartbeat | None) -> None:
        """Wait for something to do, and let the agents go on that it is for."""
        for owner, events in self._poller.wait(self._until()):
            if isinstance(owner, Running):
                self._go_on(owner)
            elif owner is self._launcher:
                for order in self._launcher.receive():
                    self._obey(order)
            elif owner is heartbeat and heartbeat is not None:
                heartbeat.answer()
            elif owner is self._channel:
                self._exchange(events)
        now = time.monotonic()
        for running in self._take_due(now):
            if time.monotonic() < now + _LONGEST_TURN_S:
                self._go_on(running)
            else:
                running.due = now
                self._remember(running)
        if self._channel is not None and self._channel.due <= now:
            with self._failing():
                self._channel.send_gathered(now)

    def _take_due(self, now: float) -> list[Running]:
        """The agents that are due, each once: one that always has something to do must not keep others waiting."""
        due = []
        while self._times and self._times[0][0] <= now:
            moment, _, running = heapq.heappop(self._times)
            if moment == running.due:
                running.due = math.inf
                due.append(running)
        return due

    def _until(self) -> float:
        """When the next turn begins at the latest."""
        while self._times and self._times[0][0] != self._times[0][2].due:
            heapq.heappop(self._times)
        at = self._times[0][0] if self._times else math.inf
        channel = self._channel
        if channel is not None:
            self._poller.watch(channel, 0 if channel.lost else READ | WRITE if channel.wants_to_write else READ)
            at = min(at, channel.due)
        return at

    def _go_on(self, running: Running, error: BaseException | None = None) -> None:
        """Let an agent go on until it waits, or (``error``) end with that."""
        if running.rank not in self._running or (running.rank in self._halted and error is None):
            return
        self._at_work = running.rank
        try:
            due = next(running.course) if error is None else running.course.throw(error)
        except (StopIteration, Stopped):
            self._end(running, 0)
        except RailyardError as failure:
            self._launcher.report_error(running.rank, str(failure), consequence=isinstance(failure, PeerLost))
            self._end(running, AgentError.exit_status)
        except Exception as failure:
            sentence = f"the agent of rank {running.rank} failed: {type(failure).__name__}: {failure}"
            self._launcher.report_error(running.rank, sentence, consequence=False)
            self._end(running, AgentError.exit_status)
        else:
            if due != running.due:
                running.due = due
                self._remember(running)
        used_s = time.thread_time()
        running.agent.processor_s += used_s - self._used_s
        self._used_s = used_s

    def _remember(self, running: Running) -> None:
        if running.due < math.inf:
            heapq.heappush(self._times, (running.due, next(self._tie), running))

    def _end(self, running: Running, status: int) -> None:
        """Forget an agent that has ended; the end of the only one of a process is told by that of the process."""
        running.due = math.inf
        self._poller.forget(running)
        del self._running[running.rank]
        self._status = max(0, status)
        if len(self._configs) > 1:
            self._launcher.report(running.rank, exited=status)
        if self._running and self._channel is not None and status:
            with contextlib.suppress(RailyardError):  # the others meet it
                self._channel.send_gathered(math.inf)  # it may have asked with others
                self._channel.notify("leave", running.rank)

    # -- what comes from outside ---------------------------------------------------------------------

    def _obey(self, order: dict[str, Any]) -> None:
        """Carry out an order of the launcher."""
        if "kill" in order:
            self._kill(order["kill"], halt=order["halt"])
            return
        if "go" in order:
            gc.freeze()  # what the agents have made so far stays
            gc.enable()
        for running in list(self._running.values()):
            if "go" in order:
                running.agent.go_at = float(order["go"])
            self._go_on(running, Stopped() if "stop" in order else None)
        if "resume" in order and self._channel is not None:
            self._exchange(READ)  # the last answers of the controller that is gone
            self._poller.forget(self._channel)
            with self._failing():
                self._channel.resume()

    def _kill(self, rank: int, *, halt: bool) -> None:
        """End an agent at once, or let it stand still, its sockets open."""
        if halt and rank in self._running:
            self._halted.add(rank)
            self._poller.forget(self._running[rank])
        elif rank in self._running:
            running = self._running[rank]
            running.course.close()
            self._end(running, KILLED)

    def _exchange(self, events: int) -> None:
        """Send what waits for the controller, and hand its answers to the agents."""
        channel, answered = self._channel, dict[Running, None]()
        assert channel is not None
        with self._failing():
            if events & WRITE:
                channel.flush()
            for answer in channel.receive() if events & ~WRITE else ():
                running = self._running.get(answer.rank)
                if running is not None:
                    running.agent.answers.append(answer)
                    answered[running] = None
        for running in answered:
            self._go_on(running)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """End all agents with an error of the block."""
        try:
            yield
        except RailyardError as error:
            for running in list(self._running.values()):
                self._go_on(running, error)


def by_process(configs: Sequence[AgentConfig], processors: int) -> Iterable[Sequence[AgentConfig]]:
    """The ranks of each agent process.

    Ranks share one where there are more of them than processors; those whose chip may die, whose payload is real or
    that a script drives, or that outlive their controller, have a process of their own.
    """
    for config in configs[:1]:
        alone = config.incarnation is not None or config.script or config.real_payload or config.outlives_controller
        most = 1 if alone else config.agents_per_process
        count = math.ceil(len(configs) / most) if most else min(len(configs), processors)
        bounds = [number * len(configs) // count for number in range(count + 1)]
        yield from (configs[first:end] for first, end in pairwise(bounds))
