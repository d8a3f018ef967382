"""The origin of results: the command line of their run without tokens, and the files that it read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from commands.origin import command_line, origin


def test_no_token_is_in_the_command_line() -> None:
    line = ["rails", "--rest-token-file", "/home/me/token", "--quick", "--rest-token-file=x", "--out", "a b"]
    assert command_line("run", line) == (
        "railyard run rails --rest-token-file FILE --quick --rest-token-file=FILE --out 'a b'"
    )


def test_the_inputs_are_the_files_that_settings_name(tmp_path: Path) -> None:
    code, traces = tmp_path / "mine.py", tmp_path / "traces"
    code.write_text("x")
    traces.mkdir()
    (traces / "0.et").write_bytes(b"y")
    settings = {
        "policy": f"{code}:Mine",
        "workload": str(traces),
        "rest_token_file": str(code),
        "draw": traces / "0.et",
        "modes": ("on-demand", "no/such/file.yaml"),
        "remote": "127.0.0.1:6653",
        "nested": {"list": [str(code)]},
    }
    found = origin("run", [], settings, ["rails"])["inputs"]
    assert [(each["file"], each["bytes"]) for each in found] == [(str(code), 1), (str(traces / "0.et"), 1)]
    assert found[0]["sha256"] == hashlib.sha256(b"x").hexdigest()
