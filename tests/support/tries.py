"""Tries of a timed test: its failure counts only where the machine kept up, and it is inconclusive where it never did.

The rules are in CONTRIBUTING.md. What a fixture of a module measures is watched only where a timed test is the first to
ask for it: where such a fixture feeds a timed test, mark the whole module.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from textwrap import shorten

import pytest
from _pytest.runner import runtestprotocol
from _pytest.terminal import TerminalReporter
from machine import Limits, Watcher

TRIES = 3
PAUSE_S = 1.0
"""Before another try: what keeps a machine busy often lasts longer than a test that is over in no time."""
MOST_INCONCLUSIVE = 0.1
"""Share of the timed tests that may be inconclusive without a warning: with more, the run says too little."""
MESSAGE_LENGTH = 120
TALLY = "RAILYARD_TIMED_TALLY"
"""Environment variable: a file that gets a line ``INCONCLUSIVE TIMED`` (two numbers) at the end of a run."""


class Try:
    """One run of a test: ``late`` says, on the word of a measurement in the test, that the machine did not keep up."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.failed = False

    def late(self, reason: str) -> None:
        """A failure of this try does not count; ``reason`` is for the summary ("timers of agents 4.9 ms late").

        Call it with what the test's own run measured (its fidelity), before the first ``assert``.
        """
        self.reasons.append(reason)


class Tries:
    """The plugin of pytest: runs timed tests, and reports what became of them; ``pause_s`` before another try."""

    def __init__(self, config: pytest.Config, machine: Watcher | None = None, pause_s: float = PAUSE_S) -> None:
        self._is_worker = hasattr(config, "workerinput")
        self._machine = machine or Watcher(alone=not self._is_worker)  # made before the workers of pytest-xdist
        self._pause_s = pause_s
        self._now = Try()
        self._watching: pytest.Item | None = None
        self._timed = 0
        self._retried: list[pytest.TestReport] = []
        self._inconclusive: list[pytest.TestReport] = []

    @pytest.fixture
    def machine(self) -> Try:
        """Where a test says that, by its own measurements, the machine did not keep up."""
        return self._now

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Try a timed test until it passes or the machine keeps up; leave the others to pytest."""
        if item.get_closest_marker("timed") is None:
            self._now = Try()
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, nextitem):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(self, item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
        """What to report of all tries: the phases of the one that counts, or the one report "inconclusive"."""
        tries: list[str] = []
        while True:
            self._now = Try()
            self._watching = item
            self._machine.watch()
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            self._stop(item)  # the test was skipped before its teardown, or has none
            if not (self._now.failed and self._now.reasons):
                return [_annotated(report, tries) for report in reports]
            tries.append(f"{'; '.join(self._now.reasons)} ({_error_of(reports)})")
            if len(tries) == TRIES:
                return [_inconclusive(reports, tries)]
            time.sleep(self._pause_s)

    def _stop(self, item: pytest.Item) -> None:
        """End the watch of this try, and judge it."""
        if self._watching is item:
            self._watching = None
            mark = item.get_closest_marker("timed")
            limits = Limits(**mark.kwargs) if mark else Limits()
            self._now.reasons += self._machine.reasons(limits)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note the failure of a try."""
        report = yield
        self._now.failed |= report.failed
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """After a try that does not count, end the fixtures of modules and of the session too: they may be late."""
        self._stop(item)
        try:
            yield
        except BaseException:
            self._now.failed = True
            raise
        finally:
            if item.get_closest_marker("timed") is not None and self._now.failed and self._now.reasons:
                item.session._setupstate.teardown_exact(None)

    def pytest_sessionfinish(self) -> None:
        """No test follows."""
        self._machine.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """The word for a test that no try decided; the rest has pytest's words."""
        return ("inconclusive", "?", "INCONCLUSIVE") if getattr(report, "inconclusive", False) else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count; under pytest-xdist this is the process that prints the summary, and what it gets was sent to it."""
        if getattr(report, "timed", False) and not (report.when == "setup" and report.passed):
            if report.when != "teardown":
                self._timed += 1
            if getattr(report, "inconclusive", False):
                self._inconclusive.append(report)
            elif report.when != "teardown" and _tries_of(report):
                self._retried.append(report)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Name the tests that needed another try and those that no try decided, and warn if these are many."""
        if self._is_worker:
            return  # nobody reads it there
        _list(terminalreporter, "timed tests that were tried again: the machine was late", self._retried)
        _list(terminalreporter, "inconclusive timed tests: the machine never kept up", self._inconclusive)
        missing = len(self._inconclusive)
        if self._timed and missing > MOST_INCONCLUSIVE * self._timed:
            says = f"{missing} of {self._timed} timed tests are inconclusive, more than {MOST_INCONCLUSIVE:.0%}"
            terminalreporter.write_line(f"warning: {says}: run them on a quieter machine", yellow=True, bold=True)
        if tally := os.environ.get(TALLY):
            with Path(tally).open("a", encoding="ascii") as file:
                file.write(f"{missing} {self._timed}\n")


def _error_of(reports: Sequence[pytest.TestReport]) -> str:
    """The error of the first phase that failed, in a try that does not count."""
    failed = next(report for report in reports if report.failed)
    crash = getattr(failed.longrepr, "reprcrash", None)
    message = str(crash.message if crash else failed.longrepr).strip().partition("\n")[0]
    return f"failed in its {failed.when}: {shorten(message, MESSAGE_LENGTH)}"


def _annotated(report: pytest.TestReport, tries: list[str]) -> pytest.TestReport:
    """The report with two fields that pytest-xdist hands on: that the test is timed, and its tries before this one."""
    report.__dict__.update(timed=not report.skipped, tries=list(tries))
    return report


def _inconclusive(reports: Sequence[pytest.TestReport], tries: list[str]) -> pytest.TestReport:
    """One report for all tries. For pytest it is a test that was skipped, since that is neither passed nor failed."""
    report = reports[-1]
    path, line, _ = report.location
    report.outcome, report.when, report.longrepr = "skipped", "call", (path, line or 0, f"inconclusive: {tries[-1]}")
    report.__dict__.update(timed=True, inconclusive=True, tries=tries)
    return report


def _tries_of(report: pytest.TestReport) -> list[str]:
    tries: list[str] = getattr(report, "tries", [])
    return tries


def _list(reporter: TerminalReporter, title: str, reports: Sequence[pytest.TestReport]) -> None:
    """A section with each test and why each of its tries did not count."""
    if reports:
        reporter.section(title, yellow=True)
        for report in reports:
            reporter.write_line(report.nodeid)
            for number, reason in enumerate(_tries_of(report), 1):
                reporter.write_line(f"    try {number}: {reason}")
