from __future__ import annotations

import os
import signal

import pytest

from railyard.signals import held_back


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_block_ends_before_a_signal_stops_the_run(number: signal.Signals) -> None:
    mine, done = signal.signal(number, signal.default_int_handler), False  # a background job ignores some of them
    try:
        with pytest.raises(KeyboardInterrupt), held_back():
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            done = True
        assert done and signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, mine)


def test_nothing_is_raised_without_a_signal() -> None:
    with held_back():
        pass
