from __future__ import annotations

from pathlib import Path

import pytest

from commands.exercises.check import LABS, NAMES, _named, main
from commands.exercises.exercise import missing_in, student_code


def test_labs_are_listed_and_copied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed[1 : len(NAMES) + 1]] == list(NAMES)
    assert max(map(len, listed)) <= 80
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        assert main(["--copy", name]) == 0
        for path in (LABS / name).iterdir():
            assert (tmp_path / name / path.name).read_text() == path.read_text()
    with pytest.raises(Exception, match="exists already"):
        main(["--copy", NAMES[0]])


@pytest.mark.parametrize("name", NAMES)
def test_a_lab_has_a_text_hints_a_start_and_ten_points(name: str) -> None:
    exercise = _named(name, "")
    assert exercise.name == name and sum(part.points for part in exercise.parts) == 10
    for file in ("README.md", "hints.md", exercise.file):
        assert (LABS / name / file).is_file(), file


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def f(:", "x.py: SyntaxError: invalid syntax (x.py, line 1)"),
        ("\nf()", "line 2 of x.py: NameError: name 'f' is not defined"),
        ("f = lambda: 1 / 0", "line 1 of x.py: ZeroDivisionError: division by zero"),
        ("g = 1", "x.py does not define f"),
        ("raise SystemExit", "line 1 of x.py: SystemExit; leave out exit()"),
    ],
)
def test_an_error_of_a_student_is_named_with_its_line(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(text)
    assert missing_in(lambda: student_code(file, "f")(), file) == sentence
