"""Progress of a rail run on the terminal: a bar for the current point, and a line for each measured one."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from experiments.rails.settings import Mode
from measure.results.row import Row


class ConsoleProgress:
    """An ``experiments.rails.run.Listener`` that shows progress on ``console``; a context manager."""

    def __init__(self, console: Console, points: int, steps: int) -> None:
        self._console = console
        self._points = points
        self._steps = steps
        self._begun = 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def fabric(self, name: str, datapath: str) -> None:
        """Print a line: fabric ``name`` is up."""
        words = "kernel" if datapath == "system" else "userspace"
        self._console.print(f"fabric [bold]{name}[/bold] is up ({words} datapath)", highlight=False)

    def point(self, mode: Mode, delay_ms: float, expected_s: float) -> None:
        """Start the progress bar of a point."""
        self._begun += 1
        if self._task is not None:
            self._progress.remove_task(self._task)
        title = f"[{self._begun}/{self._points}] {mode}, {delay_ms:g} ms (about {expected_s:.0f} s)"
        self._task = self._progress.add_task(title, total=self._steps)

    def step(self, done: int, steps: int) -> None:
        """Advance the progress bar to ``done`` steps."""
        if self._task is not None:
            self._progress.update(self._task, completed=done)

    def measured(self, row: Row) -> None:
        """Print the result of a point."""
        step, predicted = row["step_time_s"], row["predicted_step_time_s"]
        took = "no step finished" if step is None else f"step {step:.3f} s (model {predicted:.3f} s)"
        verdict = "faithful" if row["faithful"] else f"[bold red]{row['verdict']}[/bold red]"
        self._console.print(
            f"  {row['mode']}, {row['reconfiguration_delay_ms']:g} ms: {took}, {verdict}", highlight=False
        )

    def stop(self) -> None:
        """Remove the progress bar; a second call has no effect."""
        self._progress.stop()

    def __enter__(self) -> ConsoleProgress:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
