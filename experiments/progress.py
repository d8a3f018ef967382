"""Progress of a run on the terminal: a bar for the current point, and a line for all that is worth one."""

from __future__ import annotations

import textwrap
from contextlib import suppress
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


def wrapped(text: str, width: int) -> str:
    """One line of text as lines of at most ``width`` columns, where its words allow; text of several lines as it is."""
    if "\n" in text or len(text) <= width:
        return text
    begin = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(text, width, subsequent_indent=f"{begin}  ", break_long_words=False, break_on_hyphens=False)


class RunProgress:
    """Shows the progress of a run on ``console``, or nothing if that is None; a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=console is None or console.is_dumb_terminal or not console.is_terminal,
        )
        self._task: TaskID | None = None
        self.place = ""
        """Where in the run a point is, such as ``[3/24] ``: before its title and its result."""

    def say(self, text: str) -> None:
        """Print text on the console of the run; on a terminal, a line that is too long goes on after a whole word."""
        if self._console is None:
            return
        if self._console.is_terminal:
            text = wrapped(text, self._console.width)
        with suppress(OSError):  # the terminal is gone, which stops a run by SIGHUP or not at all
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def result(self, text: str) -> None:
        self.say(f"  {self.place}{text}")

    def fabric(self, name: str, datapath: str) -> None:
        """Print that fabric ``name`` is up, and how it forwards: ``bpf`` or ``ovs``."""
        self.say(f"fabric {name} is up (datapath {datapath})")

    def begin(self, title: str, expected_s: float | None = None, steps: int | None = None) -> None:
        """Start the bar of a point of ``steps`` steps that takes about ``expected_s`` seconds of wall-clock time."""
        self.done()
        about = "" if expected_s is None else f" (about {expected_s:.0f} s)"
        self._task = self._bar.add_task(self.place + title + about, total=steps)

    def step(self, done: int) -> None:
        if self._task is not None:
            self._bar.update(self._task, completed=done)

    def done(self) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with suppress(OSError):
            self._bar.stop()
