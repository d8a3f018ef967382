from __future__ import annotations

from workloads.agent.deferred_release import DeferredRelease
from workloads.agent.executor import ReleaseCircuits


def test_a_release_waits_for_the_last_buffered_send_of_its_group() -> None:
    farewell = DeferredRelease()
    farewell.began("p0-1")
    farewell.began("p0-1")
    assert farewell.may_go(ReleaseCircuits("p1-2", 0))
    assert not farewell.may_go(ReleaseCircuits("p0-1", 3))
    assert farewell.ended("p0-1") is None
    assert farewell.ended("p0-1") == ReleaseCircuits("p0-1", 3)
    assert farewell.may_go(ReleaseCircuits("p0-1", 4))


def test_without_a_release_nothing_is_returned() -> None:
    farewell = DeferredRelease()
    farewell.began("p0-1")
    assert farewell.ended("p0-1") is None
