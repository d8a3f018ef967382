"""The limit of open files of this process and what a large fabric needs."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from railyard.errors import MachineError
from railyard.limits import allow_all_open_files, allow_open_files, files_of


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The limits of the tests, with the soft one at 400; what they were comes back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    yield 400, hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_soft_limit_is_raised_as_far_as_it_must_be(limits: tuple[int, int]) -> None:
    _, hard = limits
    allow_open_files(300, "a fabric")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (400, hard)
    allow_open_files(500, "a fabric")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (500, hard)
    allow_all_open_files()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_what_the_hard_limit_does_not_permit_is_refused_with_the_number(limits: tuple[int, int]) -> None:
    _, hard = limits
    needs = rf"^a fabric of 9 hosts needs {hard + 1} open files in one process, and the limit is {hard};"
    with pytest.raises(MachineError, match=needs):
        allow_open_files(hard + 1, "a fabric of 9 hosts")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (400, hard)


def test_the_usual_limit_is_enough_for_two_hundred_hosts() -> None:
    assert files_of(hosts=2, ports=4) < files_of(hosts=160, ports=160) < 1024 < files_of(hosts=512, ports=1024) < 4096
