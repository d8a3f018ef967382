"""What becomes of tests on a machine that is late: runs of pytest, within pytest, with a machine that is made up."""

from __future__ import annotations

import pytest
from checkout import ROOT
from tries import TALLY

pytest_plugins = ["pytester"]

SUPPORT = ROOT / "tests" / "support"

CONFTEST = """
import sys

sys.path.insert(0, {support!r})

from machine import Reading
from tries import Tries


class Machine:
    '''How late the latest timer is in each try; the last number holds from there on.'''

    def __init__(self, *late_ms):
        self.late_ms = list(late_ms)

    def begin(self):
        pass

    def end(self):
        late_ms = self.late_ms.pop(0) if len(self.late_ms) > 1 else self.late_ms[0]
        return [Reading(0.0, 2, 0.0, 0.0, 0.0), Reading(1.0, 2, 1.0, 0.0, 0.0)], [0.1, late_ms]

    def close(self):
        pass


def pytest_configure(config):
    config.pluginmanager.register(Tries(config, Machine(*{late_ms!r}), pause_s=0.0))
"""
INI = """
[pytest]
addopts = -p no:cacheprovider -p no:hypothesispytest --strict-markers
filterwarnings = error
markers =
    timed(late_ms=5): measures time
"""
NEVER, ONCE, TWICE, ALWAYS = (0.2,), (7.0, 0.2), (7.0, 8.0, 0.2), (7.0, 8.0, 9.0)
RUNS = "runs.txt"
RUN_AND = f"""
import pytest

def run():
    with open({RUNS!r}, "a") as file:
        file.write("x")
        return file.tell()

@pytest.mark.timed
def test_it():
    number = run()
    assert {{what}}
"""


@pytest.fixture(autouse=True)
def no_tally(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs within this one do not count in the totals of scripts/test.sh."""
    monkeypatch.delenv(TALLY, raising=False)


class Inner:
    """One run of pytest with a made-up machine."""

    def __init__(self, pytester: pytest.Pytester, late_ms: tuple[float, ...], source: str, *options: str) -> None:
        pytester.makeini(INI)
        pytester.makeconftest(CONFTEST.format(support=str(SUPPORT), late_ms=late_ms))
        pytester.makepyfile(test_inner=source)
        self.result = pytester.runpytest(*options)
        self.status = self.result.ret
        runs = pytester.path / RUNS
        self.runs = len(runs.read_text()) if runs.exists() else 0
        *_, self.last = self.result.outlines

    def says(self, *lines: str) -> None:
        self.result.stdout.fnmatch_lines([f"*{line}*" for line in lines])


@pytest.mark.parametrize(
    ("late_ms", "condition", "options", "status", "runs", "last"),
    [
        (NEVER, "True", (), 0, 1, "1 passed"),
        (NEVER, "False", (), 1, 1, "1 failed"),
        (ALWAYS, "True", ("-v",), 0, 1, "1 passed"),
        (TWICE, "number == 3", (), 0, 3, "1 passed"),
        (TWICE, "number == 3", ("-n", "1"), 0, 3, "1 passed"),
        (ONCE, "False", (), 1, 2, "1 failed"),
        (ALWAYS, "False", (), 0, 3, "1 inconclusive"),
        (ALWAYS, "False", ("-n", "1"), 0, 3, "1 inconclusive"),
        (ALWAYS, "False", ("-rA",), 0, 3, "1 inconclusive"),
    ],
)
def test_a_failure_counts_only_where_the_machine_kept_up(
    pytester: pytest.Pytester,
    late_ms: tuple[float, ...],
    condition: str,
    options: tuple[str, ...],
    status: int,
    runs: int,
    last: str,
) -> None:
    inner = Inner(pytester, late_ms, RUN_AND.format(what=condition), *options)
    assert (inner.status, inner.runs) == (status, runs) and last in inner.last
    if runs == 3:
        inner.says("test_inner.py::test_it", "try 1: timers up to 7.0 ms late (failed in its call: *)")
    if "inconclusive" in last:
        inner.says("warning: 1 of 1 timed tests are inconclusive, more than 10%")
        assert not any(word in inner.last for word in ("passed", "failed", "skipped"))


@pytest.mark.parametrize(("limit_ms", "last"), [(3, "1 inconclusive"), (50, "1 failed")])
def test_a_test_says_how_late_a_timer_may_be(pytester: pytest.Pytester, limit_ms: int, last: str) -> None:
    source = f"import pytest\n@pytest.mark.timed(late_ms={limit_ms})\ndef test_it(): assert False"
    assert last in Inner(pytester, (4.0,), source).last


def test_a_test_that_is_not_timed_runs_once_and_one_that_is_skipped_is_skipped(pytester: pytest.Pytester) -> None:
    source = RUN_AND.format(what=False).replace("@pytest.mark.timed", "")
    source += "\n@pytest.mark.timed\ndef test_within(): pytest.skip('no switch')\n"
    inner = Inner(pytester, ALWAYS, source)
    assert (inner.status, inner.runs) == (1, 1)
    inner.result.assert_outcomes(failed=1, skipped=1)


FIXTURES = """
import pytest

def note(word):
    with open("noted.txt", "a") as file:
        file.write(word + " ")

def noted():
    with open("noted.txt") as file:
        return file.read().split()

@pytest.fixture(scope="session")
def whole():
    note("whole")
    yield
    note("/whole")

@pytest.fixture(scope="module")
def part(whole):
    note("part")
    yield [0]
    note("/part")

@pytest.fixture
def own(part):
    note("own")
    yield part
    note("/own")

@pytest.mark.timed
def test_first(own):
    own[0] += 1
    note("first:%s" % own[0])
    assert {what}

@pytest.mark.timed
def test_second(own):
    own[0] += 1
    note("second:%s" % own[0])
"""


def test_what_a_late_try_set_up_is_ended_and_set_up_anew(pytester: pytest.Pytester) -> None:
    inner = Inner(pytester, ONCE, FIXTURES.format(what='noted().count("whole") == 2'))
    inner.result.assert_outcomes(passed=2)
    noted = (pytester.path / "noted.txt").read_text().split()
    late = "whole part own first:1 /own /part /whole"
    good = "whole part own first:1 /own own second:2 /own /part /whole"
    assert noted == f"{late} {good}".split()


def test_a_test_may_say_by_its_own_measurements_that_the_machine_was_late(pytester: pytest.Pytester) -> None:
    source = """
import pytest

@pytest.mark.timed
def test_it(machine):
    machine.late("timers of agents 4.9 ms late")
    assert False

def test_that_is_not_timed(machine):
    machine.late("nobody asks")
"""
    inner = Inner(pytester, NEVER, source)
    assert "1 passed, 1 inconclusive" in inner.last
    inner.says("try 1: timers of agents 4.9 ms late (failed in its call: *)")


def test_a_run_adds_its_numbers_to_the_tally(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = pytester.path / "tally"
    monkeypatch.setenv(TALLY, str(tally))
    Inner(pytester, ALWAYS, RUN_AND.format(what=False))
    Inner(pytester, NEVER, RUN_AND.format(what=True), "-n", "1")
    assert tally.read_text() == "1 1\n0 1\n"
