from __future__ import annotations

import pytest
from cluster.machines import NO_SSHD, sshd


@pytest.fixture(scope="session", autouse=True)
def an_sshd() -> None:
    """The machines of these tests are reached by SSH."""
    if sshd() is None:
        pytest.skip(NO_SSHD)
