"""What the root tests of agents share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workloads.agent.launcher import AgentLauncher


@pytest.fixture(scope="module")
def launcher() -> Iterator[AgentLauncher]:
    with AgentLauncher.start() as running:
        yield running
