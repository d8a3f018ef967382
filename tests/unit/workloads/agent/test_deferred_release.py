from __future__ import annotations

from workloads.agent.deferred_release import DeferredRelease
from workloads.agent.executor import ReleaseCircuits


def test_a_release_waits_for_the_last_buffered_send_of_its_group() -> None:
    deferred_release = DeferredRelease()
    deferred_release.began("p0-1")
    deferred_release.began("p0-1")
    assert deferred_release.may_go(ReleaseCircuits("p1-2", 0))
    assert not deferred_release.may_go(ReleaseCircuits("p0-1", 3))
    assert deferred_release.ended("p0-1") is None
    assert deferred_release.ended("p0-1") == ReleaseCircuits("p0-1", 3)
    assert deferred_release.may_go(ReleaseCircuits("p0-1", 4))


def test_without_a_release_nothing_is_returned() -> None:
    deferred_release = DeferredRelease()
    deferred_release.began("p0-1")
    assert deferred_release.ended("p0-1") is None
