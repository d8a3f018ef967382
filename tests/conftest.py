from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tries import Tries

pytest_plugins = ["synthetic_job"]

# Shared machines are slow for a moment now and then; that is no fault of the code under test. In continuous
# integration the same examples run every time, so a failure there can be seen again here.
THOROUGH = "RAILYARD_THOROUGH"
"""Environment variable with which tests that are marked ``thorough`` run."""
settings.register_profile("railyard", deadline=None, derandomize=bool(os.environ.get("CI")), max_examples=20)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("railyard")


def pytest_configure(config: pytest.Config) -> None:
    """Timed tests count only where the machine kept up."""
    config.pluginmanager.register(Tries(config), "railyard-tries")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, for which all would wait at the end; leave out, visibly, what lacks root."""
    items.sort(key=lambda item: item.path.name != "test_walkthrough.py")
    for item in items:
        needs_root = item.get_closest_marker("root") is not None
        if needs_root != bool({"integration", "cluster"} & set(item.path.relative_to(item.config.rootpath).parts[:2])):
            raise pytest.UsageError(
                f"{item.nodeid}: what needs root is in tests/integration or tests/cluster, and all of it is marked"
            )
        in_browser = item.get_closest_marker("browser") is not None
        if in_browser != item.path.is_relative_to(item.config.rootpath / "tests" / "browser"):
            raise pytest.UsageError(f"{item.nodeid}: what needs a browser is in tests/browser, and all of it is marked")
        if item.get_closest_marker("thorough") is not None and THOROUGH not in os.environ:
            item.add_marker(pytest.mark.skip(reason=f"takes long: {THOROUGH}=1 sudo -E scripts/test.sh"))
        if needs_root and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root: sudo scripts/test.sh"))


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """This process has 1100 open files, so that further ones have numbers that select() has no room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    null = os.open("/dev/null", os.O_RDONLY)
    many = [os.dup(null) for _ in range(1100)]
    yield
    for fd in (null, *many):
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
