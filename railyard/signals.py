"""Signals that stop a run: Ctrl-C, SIGTERM, and SIGHUP of a terminal that is gone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_on_signals() -> None:
    """Raise ``KeyboardInterrupt`` on SIGTERM, in background jobs too, which ignore Ctrl-C, and on SIGHUP.

    SIGHUP stays ignored where it is, which is what ``nohup`` does.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def ignore_stops() -> None:
    """Ignore further signals of a run that was stopped: Python's own end would not be in order after one.

    Some send each signal twice, as ``timeout`` does: one that comes meanwhile raises before it can be ignored.
    """
    left = [*_STOPPING]
    while left:
        with suppress(KeyboardInterrupt):
            signal.signal(left[-1], signal.SIG_IGN)
            left.pop()


def wait_for_stop() -> NoReturn:
    """Wait in the main thread until a signal raises ``KeyboardInterrupt``, whichever thread the kernel gave it to.

    The kernel gives a signal of the process to the first thread that looks, such as one that starts another thread
    before the main thread has a processor. Python raises in the main thread alone, and does not wake it from a lock; it
    writes to this pipe from whichever thread.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        while True:
            os.read(reading, 1)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


class _Ended(BaseException):
    """SIGTERM or SIGHUP came in a block in which ``KeyboardInterrupt`` means Ctrl-C alone."""


@contextmanager
def ctrl_c_apart() -> Iterator[None]:
    """Let the block catch Ctrl-C and go on: the other signals that stop a run end it, and raise after it."""

    def end(number: int, frame: object) -> None:
        raise _Ended

    others = (signal.SIGTERM, signal.SIGHUP)
    stopping = [each for each in others if signal.getsignal(each) is signal.default_int_handler]
    for number in stopping:
        signal.signal(number, end)
    try:
        yield
    except _Ended:
        raise KeyboardInterrupt from None
    finally:
        for number in stopping:
            signal.signal(number, signal.default_int_handler)


@contextmanager
def held_back() -> Iterator[None]:
    """Let the block end before a signal stops the run: what the signal raises is raised after the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    former: dict[int, Any] = {number: signal.getsignal(number) for number in _STOPPING}
    for number, handler in former.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if came:
        handler = former[came[0]]
        if callable(handler):
            handler(came[0], None)
        raise KeyboardInterrupt
