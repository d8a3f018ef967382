from __future__ import annotations

from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from experiments.rails.cli import RailCLI, describe_switch, parse_rewire
from railyard.errors import CircuitError, MachineError


def test_rewire_words() -> None:
    assert parse_rewire("rail0 1-4 2-3") == ("rail0", [[1, 4], [2, 3]], "update")
    assert parse_rewire("rail1 1-4 safe") == ("rail1", [[1, 4]], "safe")
    assert parse_rewire("rail1 overwrite") == ("rail1", [], "overwrite")


@pytest.mark.parametrize("line", ["", "rail0", "rail0 1-", "rail0 1", "rail0 a-b", "rail0 -1-2", "safe"])
def test_rewire_nonsense(line: str) -> None:
    with pytest.raises(CircuitError):
        parse_rewire(line)


def test_switch_in_one_line() -> None:
    switch = {"circuits": [[1, 4]], "ports": {"1": "tuned", "2": "blocked", "3": "blocked", "4": "tuned"}}
    assert describe_switch(switch) == "1-4; blocked: 2,3"
    assert describe_switch({"circuits": []}) == "no circuit"


def command_line() -> RailCLI:
    """A command line without a controller that reads nothing, on a net with a host that was not made."""
    cli = RailCLI.__new__(RailCLI)
    cli.channel, cli.mn = None, {"g0": None}
    return cli


def test_what_a_command_cannot_do_is_said_and_the_next_one_is_read(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_line: str) -> None:
        raise MachineError("the shell of g0 did not start")

    cli = command_line()
    cli.do_try = refuse
    assert cli.onecmd("try") is False
    assert "*** the shell of g0 did not start" in caplog.text


@pytest.mark.parametrize("line", ["circuits", "rewire rail0 1-4"])
def test_without_our_controller_circuits_are_not_ours(line: str, caplog: pytest.LogCaptureFixture) -> None:
    assert command_line().onecmd(line) is False
    assert caplog.messages == ["*** this fabric runs without Railyard's controller\n"]


def test_packet_switches_have_no_circuits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(RailCLI, "_ask", lambda *_: {"switches": [{"name": "rail0", "kind": "electrical"}]})
    assert command_line().onecmd("circuits") is False
    assert caplog.messages == ["*** this fabric has no optical switch\n"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("source", "usage: source FILE"),
        ("trace g0", "usage: trace HOST HOST"),
        ("source /nonexistent", "/nonexistent cannot be read (No such file or directory)"),
        ("source /", "/ cannot be read (Is a directory)"),
        ("source /dev/zero", "/dev/zero: a line is longer than 65536 characters"),
        ("g0 exit 3", "exit 3 would end the shell of g0, which this prompt needs; exit leaves the prompt"),
        ("x nosuch", "there is no node nosuch; nodes lists them"),
        ("switch rail0 stop", "the switches of a fabric start and stop together; use link NODE NODE down"),
        ("pingpair", "pingpair: AttributeError: 'dict' object has no attribute 'pingPair'"),
        ("sh echo a\0b", "sh echo a\0b: ValueError: embedded null byte"),
    ],
)
def test_bad_input_does_not_end_the_command_line(line: str, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    assert command_line().onecmd(line) is False
    assert caplog.messages == [f"*** {sentence}\n"]


def test_a_file_of_commands_may_name_another_and_ends_at_exit(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_bytes(b"# a remark\n\nnote \xff two # more\n")
    outer.write_text(f"note one\nsource {inner}\nsource /nonexistent\nnote three\nexit\nnote four\n")
    cli = command_line()
    notes: list[str] = []
    cli.do_note = notes.append
    assert cli.onecmd(f"source {outer}") is True
    assert [note.strip() for note in notes] == ["one", "\N{REPLACEMENT CHARACTER} two", "three"]


def test_files_that_source_each_other_come_to_an_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    circle = tmp_path / "circle"
    circle.write_text(f"source {circle}\n")
    assert command_line().onecmd(f"source {circle}") is False
    assert caplog.messages == [f"*** {circle}: more than 10 files source each other\n"]


def test_a_byte_that_is_no_text_is_an_unknown_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    typed = tmp_path / "typed"
    typed.write_bytes(b"\xff\n")
    with typed.open(encoding="utf-8") as stdin:
        assert isinstance(stdin, TextIOWrapper)
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr(RailCLI, "readlineInited", True)  # no history in the home of who runs the tests
        RailCLI(Nothing(), stdin=stdin)
    assert "*** Unknown command: \N{REPLACEMENT CHARACTER}" in caplog.text


class Nothing(dict[str, Any]):
    """A net without nodes."""
