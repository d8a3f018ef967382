"""Progress of trials on the terminal: a spinner for the current trial, and a line for each measured one."""

from __future__ import annotations

from rich.console import Console
from rich.status import Status

from experiments.trials.trial import Trial, TrialFabric
from measure.results.row import Row
from railyard.size import in_words


class TrialProgress:
    """An ``experiments.trials.run.TrialListener`` that prints on ``console``; without ``lines`` only spinners."""

    def __init__(self, console: Console, *, lines: bool = True) -> None:
        self._console = console
        self._lines = lines
        self._status: Status | None = None

    def fabric(self, fabric: TrialFabric, datapath: str) -> None:
        """Print a line: the fabric is up."""
        words = "kernel" if datapath == "system" else "userspace"
        self._say(f"fabric {fabric.kind}, {fabric.ranks} ranks of {fabric.port_gbps:g} Gb/s, is up ({words} datapath)")

    def trial(self, trial: Trial, expected_s: float) -> None:
        """Start the spinner of a trial."""
        late = f", {trial.straggler_delay_s:.3g} s late" if trial.straggler_delay_s else ""
        self.stop()
        text = f"{trial.schedule.algorithm}, {in_words(trial.bytes)}{late} (about {expected_s:.0f} s)"
        self._status = self._console.status(text)
        self._status.start()

    def measured(self, row: Row) -> None:
        """Print the result of a trial."""
        self.stop()
        late = f", {row['straggler_delay_s']:.3g} s late" if row["straggler_delay_s"] else ""
        verdict = "faithful" if row["faithful"] else row["verdict"]
        self._say(
            f"  {row['algorithm']}, {row['n']} ranks, {in_words(row['bytes'])}, {row['fabric']}{late}: "
            f"{row['time_s']:.4f} s (model {row['predicted_time_s']:.4f} s), {verdict}"
        )

    def note(self, text: str) -> None:
        """Print a note for the user."""
        self._say(f"  {text}")

    def stop(self) -> None:
        """Remove the spinner; a second call has no effect."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _say(self, text: str) -> None:
        if self._lines:
            self._console.print(text, highlight=False, markup=False)
