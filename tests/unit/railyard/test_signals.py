from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from railyard.process.start import child_environment
from railyard.signals import ctrl_c_apart, held_back, ignore_stops


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_was_held_back_is_no_ctrl_c(number: signal.Signals) -> None:
    mine, went_on = signal.signal(number, signal.default_int_handler), False
    try:
        with pytest.raises(KeyboardInterrupt), ctrl_c_apart():
            try:
                with held_back():
                    os.kill(os.getpid(), number)
            except KeyboardInterrupt:
                went_on = True
        assert not went_on
    finally:
        signal.signal(number, mine)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_block_that_catches_ctrl_c_is_ended_by_the_other_signals(number: signal.Signals) -> None:
    mine, caught = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGINT, number)}, 0
    try:
        with pytest.raises(KeyboardInterrupt), ctrl_c_apart():
            while caught < 3:
                try:
                    os.kill(os.getpid(), number if caught else signal.SIGINT)
                    time.sleep(5)
                except KeyboardInterrupt:
                    caught += 1
        assert caught == 1 and signal.getsignal(number) is signal.default_int_handler
    finally:
        for each, handler in mine.items():
            signal.signal(each, handler)


def test_a_second_signal_before_the_first_is_answered_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[int] = []

    def second(number: int, handler: object) -> None:
        ignored.append(number)
        if ignored.count(number) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", second)
    ignore_stops()
    assert {number: ignored.count(number) for number in ignored} == dict.fromkeys((1, 2, 15), 2)


@pytest.mark.parametrize("thread", ["threading.main_thread().ident", "threading.get_ident()"])
def test_a_signal_ends_the_wait_whichever_thread_the_kernel_gives_it_to(thread: str) -> None:
    code = f"""if True:
        import signal, threading
        from railyard.signals import stop_on_signals, wait_for_stop
        stop_on_signals()
        threading.Timer(0.1, lambda: signal.pthread_kill({thread}, signal.SIGTERM)).start()
        try:
            wait_for_stop()
        except KeyboardInterrupt:
            print("stopped")
    """
    found = subprocess.run([sys.executable, "-c", code], env=child_environment(), capture_output=True, timeout=30)
    assert (found.stdout, found.stderr) == (b"stopped\n", b"")
