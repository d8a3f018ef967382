from __future__ import annotations

import os

import pytest
from hypothesis import settings

pytest_plugins = ["synthetic_job"]

# Shared machines are slow for a moment now and then; that is no fault of the code under test. In continuous
# integration the same examples run every time, so a failure there can be seen again here.
settings.register_profile("railyard", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("railyard")


TRIES = 3
"""What a fault of ours fails, it fails every time; what another's work delayed passes when that is over."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out, visibly, what needs root when there is none; try what goes by the clock again, as visibly."""
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root: sudo scripts/test.sh"))
        elif item.get_closest_marker("root") or item.get_closest_marker("live"):
            item.add_marker(pytest.mark.flaky(reruns=TRIES - 1))
