"""The process that hands out the circuits of an optical trunk, and how a leaf server asks it for one.

The arbiter decides (``experiments.propius.control.trunk``), and the controller of the fabric sets up the circuits (its
job channel).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

from controllers.northbound.client import ChannelClient
from experiments.propius.control.trunk import Actions, CircuitEnded, Granted, TrunkArbiter, TurnTo
from experiments.propius.data.endpoint import Pool
from experiments.propius.data.messages import EdgeError, EdgeRefused, Number, operation
from experiments.propius.run import TRUNK_PORT, Actor, EdgeRun, EventFile, Orders, Role, TrunkTurns
from railyard.errors import ControlError
from railyard.scale import goodput_share
from railyard.validation import Whole
from topos.edge_plan import CONTROL

LONGEST_WAIT_S = 600.0
"""Patience of the pool of connections to the arbiter: a request is answered when its turn has come."""


@asynccontextmanager
async def turn(arbiter: Pool, region: int, size: int) -> AsyncIterator[None]:
    """A turn of the region on the trunk, for a transfer of ``size`` bytes with the root; it ends with the block.

    ``arbiter`` leads to the trunk's process with a patience of ``LONGEST_WAIT_S``; ``EdgeError`` if that is gone.
    """
    granted = await arbiter.call("acquire", region=region, bytes=size)
    try:
        yield
    finally:
        with suppress(EdgeError):
            await arbiter.call("release", token=granted.fields["token"])


_SWITCH, _ROOT_PORT = "trunk", 1
_MTU = 1500
_CHANNEL_S = 30.0


class TrunkActor(Actor):
    """Answers the leaf servers and executes what the arbiter orders. ``failed`` raises an error of the controller."""

    def __init__(self, run: EdgeRun, turns: TrunkTurns, events: EventFile) -> None:
        super().__init__(events)
        self._turns, self._regions = turns, run.plan.regions
        mbps = run.plan.trunk_mbps * goodput_share(_MTU)
        self._arbiter = TrunkArbiter(len(self._regions), turns.policy, mbps, turns.slot_s)
        self._channel = ChannelClient(turns.channel, timeout_s=turns.delay_s + _CHANNEL_S)
        self._thread = ThreadPoolExecutor(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def start(self) -> None:
        self._do(self._arbiter.start(time.monotonic()))

    @operation
    async def acquire(self, region: Number, bytes: Whole) -> dict[str, int]:
        """Leaf server of ``region`` wants to transfer ``bytes``; answered with a ``token`` when it may."""
        try:
            token, actions = self._arbiter.ask(region, bytes, time.monotonic())
        except ControlError as error:
            raise EdgeRefused(str(error)) from None
        granted = self._waiting[token] = self.loop.create_future()
        self._do(actions)
        try:
            await granted
        except asyncio.CancelledError:  # the leaf server is gone
            self._waiting.pop(token, None)
            self._do(self._arbiter.done(token, time.monotonic()))
            raise
        return {"token": token}

    @operation
    def release(self, token: Whole) -> dict[str, int]:
        """The transfer of ``token`` is over."""
        self._do(self._arbiter.done(token, time.monotonic()))
        return {}

    def _do(self, actions: Actions) -> None:
        for action in actions:
            if isinstance(action, TurnTo):
                self.spawn(self._tune(action.region))
            elif isinstance(action, Granted):
                granted = self._waiting.pop(action.token)
                if not granted.done():
                    granted.set_result(None)
            else:
                self._note(action)
        self.call_at(self._arbiter.due(), self._tick)

    def _tick(self) -> None:
        self._do(self._arbiter.tick(time.monotonic()))

    def _note(self, ended: CircuitEnded) -> None:
        """Write the ``trunk`` event of a circuit, from the moment at which it was up."""
        fields = {"region": ended.region, "transfers": ended.transfers, "bytes": ended.bytes}
        self.events.note("trunk", ended.began, time.monotonic(), policy=self._turns.policy, **fields)

    async def _tune(self, region: int) -> None:
        circuit = (_ROOT_PORT, self._regions[region].trunk_port)
        await asyncio.sleep(self._turns.guard_s)
        await self.loop.run_in_executor(self._thread, self._rewire, circuit)
        self._do(self._arbiter.tuned(time.monotonic()))

    def _rewire(self, circuit: tuple[int, int]) -> None:
        self._channel.rewire(_SWITCH, [circuit], delay_s=self._turns.delay_s)

    def stop(self) -> None:
        """Note the circuit that is up."""
        for action in self._arbiter.stop():
            if isinstance(action, CircuitEnded):
                self._note(action)

    async def end(self) -> None:
        await super().end()
        self._thread.shutdown(wait=True)
        self._channel.close()


async def trunk_work(run: EdgeRun, role: Role, orders: Orders) -> None:
    assert run.turns is not None, "an electrical trunk has no arbiter"
    actor = TrunkActor(run, run.turns, EventFile(role.events))
    await actor.serve(run.netns_fds[CONTROL], TRUNK_PORT, orders.ready, cancels=True)
