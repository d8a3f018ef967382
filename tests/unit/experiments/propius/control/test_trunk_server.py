from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from experiments.propius.control import trunk_server
from experiments.propius.control.trunk_server import TrunkActor
from experiments.propius.data.endpoint import Client, serve
from experiments.propius.run import EdgeRun, EventFile, TrunkTurns
from topos.edge_plan import EdgePlan, EdgeRegion

HERE = ("127.0.0.1", 0)


class Channel:
    """A controller that sets up each circuit at once."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def rewire(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...


def test_the_request_of_a_leaf_server_that_dies_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trunk_server, "ChannelClient", Channel)

    async def run() -> None:
        turns = TrunkTurns("c", "phase", 0.0)
        plan = EdgePlan("ocs", 8.0, "", "", (EdgeRegion("", "", "", 2, ()),) * 3)
        run = EdgeRun(plan, (None, None), tmp_path, (), (), 10, turns=turns)
        actor = TrunkActor(run, turns, EventFile(tmp_path / "e"))
        server = await serve(None, HERE, actor.handle, cancels=True)
        actor.start()
        leaves = [Client(None, server.address) for _ in range(3)]
        held = (await leaves[0].call("acquire", region=0, bytes=10)).fields["token"]
        dies, waits = (
            asyncio.create_task(leaves[region].call("acquire", region=region, bytes=10)) for region in (1, 2)
        )
        while len(actor._waiting) < 2:
            await asyncio.sleep(0.005)
        dies.cancel()
        while len(actor._waiting) > 1:
            await asyncio.sleep(0.005)
        await leaves[0].call("release", token=held)
        assert (await asyncio.wait_for(waits, 2)).fields["token"] == 3
        for leaf in leaves:
            await leaf.close()
        await server.close()
        await actor.end()

    asyncio.run(asyncio.wait_for(run(), 4))
