"""What becomes of tests on a machine that is late: runs of pytest, within pytest, with a machine that is made up."""

from __future__ import annotations

import re

import pytest
from checkout import ROOT
from tries import TALLY

pytest_plugins = ["pytester"]

SUPPORT = ROOT / "tests" / "support"

CONFTEST = """
import sys

sys.path[:0] = [{root!r}, {support!r}]

from machine import judge
from tries import Tries


class Machine:
    '''How late the latest timer is in each try; the last number holds from there on.'''

    def __init__(self, *late_ms):
        self.late_ms = list(late_ms)

    def watch(self):
        pass

    def reasons(self, limits):
        return judge([], self.late_ms.pop(0) if len(self.late_ms) > 1 else self.late_ms[0], limits)

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
    usual: measures none
"""


def inner(pytester: pytest.Pytester, late_ms: tuple[float, ...], source: str, *options: str) -> pytest.RunResult:
    """One run of pytest with a made-up machine."""
    pytester.makeini(INI)
    pytester.makeconftest(CONFTEST.format(root=str(ROOT), support=str(SUPPORT), late_ms=late_ms))
    pytester.makepyfile(test_inner=source)
    return pytester.runpytest(*options)


NEVER, ONCE, TWICE, ALWAYS = (0.2,), (7.0, 0.2), (7.0, 8.0, 0.2), (7.0, 8.0, 9.0)
RUN_AND = """
import pytest

def run():
    with open("runs.txt", "a") as file:
        file.write("x")
        return file.tell()

@pytest.mark.{mark}
def test_it(machine):
    number = run()
    assert {condition}
"""
LATE_BY_ITSELF = "machine.late('timers of agents 7.0 ms late') or False"


@pytest.mark.parametrize(
    ("late_ms", "mark", "condition", "option", "outcome", "runs"),
    [
        (NEVER, "timed", "False", "-v", "failed", 1),
        (ALWAYS, "timed", "True", "-v", "passed", 1),
        (TWICE, "timed", "number == 3", "-v", "passed", 3),
        (TWICE, "timed", "number == 3", "-n1", "passed", 3),
        (ONCE, "timed", "False", "-v", "failed", 2),
        (ALWAYS, "timed", "False", "-v", "inconclusive", 3),
        (ALWAYS, "timed", "False", "-n1", "inconclusive", 3),
        (ALWAYS, "timed(late_ms=50)", "False", "-v", "failed", 1),
        (NEVER, "timed", LATE_BY_ITSELF, "-v", "inconclusive", 3),
        (ALWAYS, "usual", "False", "-v", "failed", 1),
        (ALWAYS, "timed", "pytest.skip('no switch')", "-v", "skipped", 1),
    ],
)
def test_a_failure_counts_only_where_the_machine_kept_up(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    late_ms: tuple[float, ...],
    mark: str,
    condition: str,
    option: str,
    outcome: str,
    runs: int,
) -> None:
    tally = pytester.path / "tally"
    monkeypatch.setenv(TALLY, str(tally))
    result = inner(pytester, late_ms, RUN_AND.format(mark=mark, condition=condition), option)
    assert result.ret == (outcome == "failed") and len((pytester.path / "runs.txt").read_text()) == runs
    assert re.findall(r"1 (?:passed|failed|skipped|inconclusive)", result.outlines[-1]) == [f"1 {outcome}"]
    timed = mark != "usual" and outcome != "skipped"
    assert tally.read_text() == f"{int(outcome == 'inconclusive')} {int(timed)}\n"
    if runs == 3:
        tried = "*try 1: timers * 7.0 ms late (failed in its call: *)*"
        result.stdout.fnmatch_lines(["*test_inner.py::test_it*", tried])
    if outcome == "inconclusive":
        result.stdout.fnmatch_lines(["*warning: 1 of 1 timed tests are inconclusive, more than 10%*"])


FIXTURES = """
import pathlib
import pytest

def note(word):
    with open("noted.txt", "a") as file:
        file.write(word + " ")

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
@pytest.mark.parametrize("name", ["first", "second"])
def test_it(own, name):
    own[0] += 1
    note("%s:%s" % (name, own[0]))
    assert pathlib.Path("noted.txt").read_text().count("/whole") == 1
"""


def test_what_a_late_try_set_up_is_ended_and_set_up_anew(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TALLY, raising=False)
    inner(pytester, ONCE, FIXTURES).assert_outcomes(passed=2)
    late = "whole part own first:1 /own /part /whole"
    good = "whole part own first:1 /own own second:2 /own /part /whole"
    assert (pytester.path / "noted.txt").read_text() == f"{late} {good} "
