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

    def does_not_say(self, line: str) -> None:
        self.result.stdout.no_fnmatch_line(f"*{line}*")


def test_a_pass_on_a_machine_that_kept_up_counts_at_once(pytester: pytest.Pytester) -> None:
    inner = Inner(pytester, NEVER, RUN_AND.format(what=True))
    assert (inner.status, inner.runs) == (0, 1)
    inner.result.assert_outcomes(passed=1)
    inner.does_not_say("tried again")
    inner.does_not_say("inconclusive")


def test_a_failure_on_a_machine_that_kept_up_counts_at_once(pytester: pytest.Pytester) -> None:
    inner = Inner(pytester, NEVER, RUN_AND.format(what=False))
    assert (inner.status, inner.runs) == (1, 1)
    inner.result.assert_outcomes(failed=1)


@pytest.mark.parametrize("options", [(), ("-n", "1"), ("-v",)])
def test_a_pass_on_a_late_machine_counts_at_once(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    inner = Inner(pytester, ALWAYS, RUN_AND.format(what=True), *options)
    assert (inner.status, inner.runs) == (0, 1)
    inner.result.assert_outcomes(passed=1)
    inner.does_not_say("tried again")
    inner.does_not_say("inconclusive")


@pytest.mark.parametrize("options", [(), ("-n", "1"), ("-v",)])
def test_a_failure_on_a_late_machine_is_tried_again_and_the_summary_says_why(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    inner = Inner(pytester, TWICE, RUN_AND.format(what="number == 3"), *options)
    assert (inner.status, inner.runs) == (0, 3)
    inner.result.assert_outcomes(passed=1)
    inner.does_not_say("inconclusive")
    inner.says(
        "timed tests that were tried again",
        "test_inner.py::test_it",
        "try 1: timers up to 7.0 ms late (failed in its call: *)",
        "try 2: timers up to 8.0 ms late (failed *)",
    )


def test_a_failure_after_a_late_try_is_a_failure(pytester: pytest.Pytester) -> None:
    inner = Inner(pytester, ONCE, RUN_AND.format(what=False))
    assert (inner.status, inner.runs) == (1, 2)
    inner.result.assert_outcomes(failed=1)
    inner.says("tried again", "test_it")


@pytest.mark.parametrize("options", [(), ("-n", "1"), ("-v",), ("-q",), ("-rA",)])
def test_a_test_that_fails_on_a_machine_that_is_always_late_neither_passes_nor_fails(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    inner = Inner(pytester, ALWAYS, RUN_AND.format(what=False), *options)
    assert (inner.status, inner.runs) == (0, 3)
    inner.says(
        "inconclusive timed tests",
        "test_inner.py::test_it",
        "try 1: timers up to 7.0 ms late (failed*)",
        "try 3: timers up to 9.0 ms late (*)",
        "warning: 1 of 1 timed tests are inconclusive, more than 10%",
    )
    assert "1 inconclusive" in inner.last
    assert not any(word in inner.last for word in ("passed", "failed", "skipped"))


def test_one_of_ten_may_be_inconclusive_without_a_warning(pytester: pytest.Pytester) -> None:
    source = "import pytest\n@pytest.mark.timed\n@pytest.mark.parametrize('i', range(10))\ndef test_it(i): assert i"
    inner = Inner(pytester, (7.0, 7.0, 7.0, 0.2), source)
    assert "9 passed, 1 inconclusive" in inner.last
    inner.does_not_say("warning: ")


def test_two_of_ten_are_worth_a_warning(pytester: pytest.Pytester) -> None:
    source = "import pytest\n@pytest.mark.timed\n@pytest.mark.parametrize('i', range(10))\ndef test_it(i): assert i > 1"
    inner = Inner(pytester, (7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 0.2), source, "-n", "1")
    assert "8 passed, 2 inconclusive" in inner.last
    inner.says("warning: 2 of 10 timed tests")


@pytest.mark.parametrize(("late_ms", "last"), [(3, "1 inconclusive"), (50, "1 failed")])
def test_a_test_says_how_late_a_timer_may_be(pytester: pytest.Pytester, late_ms: int, last: str) -> None:
    source = f"import pytest\n@pytest.mark.timed(late_ms={late_ms})\ndef test_it(): assert False"
    assert last in Inner(pytester, (4.0,) if late_ms < 4 else ALWAYS, source).last


def test_a_test_that_is_not_timed_runs_once_however_late_the_machine_is(pytester: pytest.Pytester) -> None:
    source = RUN_AND.format(what=False).replace("@pytest.mark.timed", "")
    inner = Inner(pytester, ALWAYS, source)
    assert (inner.status, inner.runs) == (1, 1)


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


def test_what_a_late_try_that_passed_set_up_is_kept(pytester: pytest.Pytester) -> None:
    Inner(pytester, ALWAYS, FIXTURES.format(what=True)).result.assert_outcomes(passed=2)
    noted = (pytester.path / "noted.txt").read_text()
    assert noted == "whole part own first:1 /own own second:2 /own /part /whole "


def test_an_inconclusive_test_leaves_nothing_to_the_next(pytester: pytest.Pytester) -> None:
    inner = Inner(pytester, (7.0, 7.0, 7.0, 0.2), FIXTURES.format(what=False))
    assert "1 passed, 1 inconclusive" in inner.last
    noted = (pytester.path / "noted.txt").read_text().split()
    assert noted == (["whole", "part", "own", "first:1", "/own", "/part", "/whole"] * 3) + [
        *("whole", "part", "own", "second:1", "/own", "/part", "/whole")
    ]


BROKEN = f"""
import pytest

@pytest.fixture(scope="module")
def broken():
    with open({RUNS!r}, "a") as file:
        file.write("x")
    {{before}}
    yield
    {{after}}

@pytest.mark.timed
def test_it(broken):
    pass
"""


@pytest.mark.parametrize(("before", "after", "phase"), [("1 / 0", "", "setup"), ("", "1 / 0", "teardown")])
def test_a_fixture_that_fails_counts_only_where_the_machine_kept_up(
    pytester: pytest.Pytester, before: str, after: str, phase: str
) -> None:
    source = BROKEN.format(before=before, after=after)
    late = Inner(pytester, ALWAYS, source)
    assert (late.status, late.runs) == (0, 3)
    late.says(f"(failed in its {phase}: ZeroDivisionError: *)", "1 inconclusive")
    kept_up = Inner(pytester, NEVER, source)
    assert (kept_up.status, kept_up.runs) == (1, 4)
    kept_up.result.assert_outcomes(errors=1, passed=phase == "teardown")


def test_a_test_that_is_skipped_is_skipped(pytester: pytest.Pytester) -> None:
    source = """
import pytest

@pytest.mark.timed
@pytest.mark.skip(reason="no root")
def test_before(): pass

@pytest.mark.timed
def test_within(): pytest.skip("no switch")
"""
    inner = Inner(pytester, ALWAYS, source)
    inner.result.assert_outcomes(skipped=2)
    inner.does_not_say("inconclusive")


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
