from __future__ import annotations

import pytest

from commands.sweep.workers.worker_process import addresses


@pytest.mark.parametrize(
    ("connection", "here", "there"),
    [
        ("", "127.0.0.1", "127.0.0.1"),
        ("10.0.0.1 52110 10.0.0.2 22", "10.0.0.2", "10.0.0.1"),
        ("fd00::1 52110 fd00::2 22", "[fd00::2]", "[fd00::1]"),
    ],
)
def test_a_worker_listens_where_ssh_came_in_and_joins_where_it_came_from(
    connection: str, here: str, there: str
) -> None:
    assert addresses(connection) == (here, there)
