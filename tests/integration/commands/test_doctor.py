"""``railyard doctor`` on a real kernel: what it tries, and that nothing is left of it."""

from __future__ import annotations

import os
import socket

import pytest

from commands import doctor
from topos.kernel import queues

pytestmark = [pytest.mark.root, pytest.mark.beside]


def test_what_the_kernel_lacks_is_found_by_trying_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before = socket.if_nameindex(), os.sched_getscheduler(0), len(os.listdir("/proc/self/fd"))
    assert {*doctor.refused_rights(), *doctor.refused_features()} <= {"netem"}, "all else is needed by the tests here"
    monkeypatch.setattr(queues, "token_bucket", lambda *_: queues.remove_delay(99, "nothing"))
    assert "tbf" in doctor.refused_features() and "htb" not in doctor.refused_features()
    assert (socket.if_nameindex(), os.sched_getscheduler(0), len(os.listdir("/proc/self/fd"))) == before
