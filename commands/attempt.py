"""What every command of a person ends with: an exit status, and one sentence where something kept it from its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from railyard.errors import RailyardError, from_os_error
from railyard.signals import ignore_stops

STOPPED_EXIT_STATUS = 130


def attempted(act: Callable[[], int]) -> int:
    """The exit status of ``act``, or that of the error that ended it, which is said in one sentence."""
    try:
        status = act()
        sys.stdout.flush()
        return status
    except RailyardError as error:
        _say(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        ignore_stops()
        _say("stopped")
        return STOPPED_EXIT_STATUS
    except BrokenPipeError:  # the reader (such as head) has closed the pipe: the buffered rest must not raise at exit
        _drop_output()
        return 0
    except OSError as error:
        found = from_os_error(error)
        _say(str(found))
        return found.exit_status


def _say(sentence: str) -> None:
    """Write a sentence to standard error. Where the terminal is gone, it and the rest of the output are dropped."""
    with suppress(OSError):
        print(f"railyard: {sentence}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Drop what standard output still holds: Python would end with an error of its own if it could not write that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
