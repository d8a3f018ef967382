"""Labs that mark themselves, on real fabrics: solutions, what is nearly right, and what is broken."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from commands.exercises import check
from commands.exercises.exercise import Missing
from railyard.errors import MachineError

pytestmark = [pytest.mark.root, pytest.mark.beside]
SOLUTIONS = Path(__file__).with_name("solutions")
LABS = ["learning-switch", "dark-time", "failover"]
CHECK_TIMES = int(os.environ.get("RAILYARD_CHECKS", "1"))
"""How often each solution is checked, for a campaign; 20 before a release."""
Marked = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Marked:
    """Checks a folder of a lab with its file as ``text``; the status, and a sentence a part."""

    def mark(name: str, text: str) -> tuple[int, list[str]]:
        folder = tmp_path / name
        shutil.copytree(check.LABS / name, folder, dirs_exist_ok=True)
        (folder / check._named(name, "").file).write_text(text)
        status = check.main([str(folder)])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        assert all(len(line) <= 80 for line in printed.out.splitlines())
        return status, printed.out.replace("\n        ", " ").splitlines()

    return mark


def solution(name: str) -> str:
    return (SOLUTIONS / name / check._named(name, "").file).read_text()


@pytest.mark.parametrize("name", LABS)
def test_a_solution_gets_all_points(name: str, marked: Marked) -> None:
    for _ in range(CHECK_TIMES):
        status, lines = marked(name, solution(name))
        assert status == 0 and lines[-1] == "10 of 10 points", lines


@pytest.mark.parametrize(
    ("name", "right", "wrong", "part", "sentence"),
    [
        ("learning-switch", "if port is None:", "if True:", 1, "came to g1, g2, g3, and should come to g1"),
        ("learning-switch", "self.add_flow(datapath, 1, match, port)", "", 2, "stood still"),
        ("learning-switch", "self.remove_flows(", "str(", 3, "came to g1, and should come to g2"),
        ("learning-switch", "frame.src", "frame.sorce", 0, "line 31 of learning_switch.py: AttributeError"),
        ("learning-switch", "class L", "clas L", 0, "the app did not start: .*SyntaxError"),
        ("dark-time", "1.35s", "0.9s", 1, "packets from g0 to g1 were lost from 0 s to 1 s"),
        ("dark-time", "2-6 3-7", "1-6 3-8", 2, "packets from g3 to g0 were lost"),
        ("dark-time", "connect rail0 2-6 3-7", "fail g1", 0, "'1.35s fail g1' is not for this lab"),
        ("failover", "min(free, key=lambda spare: (length(spare), spare))", "free[0]", 0, "where chip 9 should be"),
        ("failover", "class NearestSpare(LumionPolicy)", "class Other", 0, "does not define NearestSpare"),
        ("failover", "return {", "return {0: 1} and {0: 17, ", 1, "the answer moves 0"),
        ("failover", "return {dead: ", "return {} and {dead: ", 2, "the job is stranded|gave no result"),
    ],
)
def test_what_is_nearly_right_misses_a_part(
    name: str, right: str, wrong: str, part: int, sentence: str, tmp_path: Path
) -> None:
    exercise, text = check._named(name, ""), solution(name)
    assert right in text
    (tmp_path / exercise.file).write_text(text.replace(right, wrong))
    with pytest.raises(Missing, match=sentence), exercise.begin(tmp_path / exercise.file) as subject:
        for earlier in exercise.parts[:part]:
            with suppress(Missing):
                earlier.check(subject)
        exercise.parts[part].check(subject)


ENDLESS = "it did not end within 4 s; is there an endless loop in spares.py?"
DEFIANT = """
import time
while True:
    try:
        time.sleep(1)
    except BaseException:
        pass
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (DEFIANT, ENDLESS),
        ("while True: print('x' * 1000)", "line 1 of spares.py: OSError: [Errno 27] File too large"),
        ("import os; print('\\n\"\"', flush=True); os._exit(0)", "spares.py ended the check"),
        ("import atexit; atexit.register(print, '\"\"')", "spares.py does not define NearestSpare"),
        ("kept = [0]\nwhile True: kept *= 2", "line 2 of spares.py: MemoryError"),
    ],
)
def test_what_a_file_does_is_told_in_a_sentence_and_leaves_nothing(
    text: str, sentence: str, marked: Marked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "CHECK_S", 4.0 if sentence == ENDLESS else 30.0)
    begin = time.monotonic()
    status, lines = marked("failover", text)
    assert time.monotonic() - begin < 4.0 + check.PATIENCE_S + 10 or sentence != ENDLESS
    assert status == 1 and lines[-1] == "0 of 10 points"
    assert sentence in lines[0], lines
    assert not (tmp_path / "failover" / "__pycache__").exists()


def test_a_machine_at_fault_ends_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 3 of the run in the third part is not the student's."""
    (tmp_path / "spares.py").write_text(solution("failover"))
    monkeypatch.setattr("commands.exercises.failover.run_command", lambda command, log: log.write_text("no disk") and 3)
    with pytest.raises(MachineError, match="no disk"):
        check._named("failover", "").parts[2].check(tmp_path / "spares.py")
