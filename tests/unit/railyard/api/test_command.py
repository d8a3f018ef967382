"""How calls of the API start the command, end it, and turn its exit status into an error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from railyard import errors
from railyard.api import command, run
from railyard.api.lab import Host, Lab
from railyard.checkout import NEEDS_ROOT

REFUSED = f"print('railyard: {NEEDS_ROOT}; run: x', file=sys.stderr); sys.exit(3)"
"""What the script of ``says`` does for a user who is not root."""
Says = Callable[[str], None]


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Says:
    """Makes a script of Python take the place of the command."""

    def replace(script: str) -> None:
        code = f"import os, signal, sys, time\n{script}"
        monkeypatch.setattr(command, "command_line", lambda *words: [sys.executable, "-c", code, *map(str, words)])

    return replace


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """Makes this process a plain user's, whose sudo is a shell script."""

    def replace(script: str) -> None:
        path = tmp_path / "sudo"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return replace


def test_what_the_command_prints(says: Says) -> None:
    says("print(sys.argv[1:]); print('railyard: not predicted', file=sys.stderr); print('noise', file=sys.stderr)")
    assert command.railyard("predict", 3) == "['predict', '3']\n"


@pytest.mark.parametrize("kind", [errors.ConfigError, errors.MachineError, errors.CircuitError, errors.ControlError,
                                  errors.AgentError, errors.VerifyError, errors.RailyardError])  # fmt: skip
def test_an_exit_status_is_the_error_that_has_it(says: Says, kind: type[errors.RailyardError]) -> None:
    says(f"print('railyard: the sentence', file=sys.stderr); sys.exit({kind.exit_status})")
    with pytest.raises(errors.RailyardError, match=r"^the sentence$") as caught:
        command.railyard("run")
    assert type(caught.value) is kind


def test_a_status_that_a_result_may_have_is_an_error_where_nothing_was_printed(says: Says) -> None:
    says("print('no answer'); sys.exit(1)")
    assert command.railyard("ping", fine=(0, 1)) == "no answer\n"
    says("print('railyard: the lab has gone', file=sys.stderr); sys.exit(1)")
    with pytest.raises(errors.RailyardError, match=r"^the lab has gone$"):
        command.railyard("ping", fine=(0, 1))


def test_an_end_without_a_sentence_is_told_by_its_status(says: Says) -> None:
    says("os.kill(os.getpid(), 9)")
    with pytest.raises(errors.RailyardError, match="ended with status -9"):
        command.railyard("run")
    says("sys.exit(130)")
    with pytest.raises(KeyboardInterrupt):
        command.railyard("run")


def test_unfaithful_results_are_results(says: Says) -> None:
    says("print('[]'); sys.exit(8)")
    assert command.as_root_if_needed("run", shown=False) == "[]\n"


def test_progress_is_shown_while_the_command_runs(says: Says, capsys: pytest.CaptureFixture[str]) -> None:
    says("e = sys.stderr; e.write('half\\nand '); e.flush(); time.sleep(0.5); e.write('all\\nrailyard: a note\\n')")
    assert command.railyard("run", shown=True) == ""
    assert capsys.readouterr().err == "half\nand all\n"
    command.railyard("run")
    assert capsys.readouterr().err == ""


def test_ctrl_c_ends_the_command_in_order(says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tidied, begun = tmp_path / "tidied", tmp_path / "begun"
    says(f"""
signal.signal(signal.SIGINT, signal.default_int_handler)
try: open({str(begun)!r}, 'w'); time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3); open({str(tidied)!r}, 'w')
""")

    def interrupted(*_: object) -> None:
        while not begun.exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.railyard("run")
    assert tidied.exists()


def test_a_program_gets_what_is_given() -> None:
    assert command.finished(["cat"], given="words").stdout == "words"


def test_what_is_left_in_the_background_is_not_waited_for() -> None:
    begun = time.monotonic()
    assert command.finished(["sh", "-c", "sleep 3 & echo there"]).stdout == "there\n"
    assert time.monotonic() < begun + 2


def test_values_that_no_command_can_have() -> None:
    with pytest.raises(errors.ConfigError, match="no command can be given these values"):
        command.railyard("predict", "x" * 200_000)
    with pytest.raises(errors.ConfigError, match="null byte"):
        command.railyard("predict", "a\0b")


def test_what_the_machine_refuses_to_a_user_is_done_by_sudo(says: Says, sudo: Says) -> None:
    says(f"if 'ROOT' not in os.environ: {REFUSED}\nprint('done')")
    sudo('shift; ROOT=1 exec "$@"')
    assert command.as_root_if_needed("run", shown=False) == "done\n"


def test_a_sudo_that_wants_a_password_is_an_error_with_what_to_type(says: Says, sudo: Says) -> None:
    says(REFUSED)
    sudo("echo sudo: a password is required >&2; exit 1")
    with pytest.raises(errors.MachineError, match=r"this needs root, .*; type: sudo \S*python"):
        command.as_root_if_needed("run", shown=False)


def test_a_refusal_by_sudo_is_no_result_of_a_program(sudo: Says) -> None:
    sudo("echo sudo: a password is required >&2; exit 1")
    lab: Any = SimpleNamespace(name="mine")
    with pytest.raises(errors.MachineError, match="this needs root"):
        Host(lab, "g0").run(["true"])
    with pytest.raises(errors.MachineError, match="this needs root"):
        Lab.ping(lab, "g0", "g1")


def test_a_command_of_root_is_told_by_sudo_to_end(sudo: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(process: subprocess.Popen[bytes], number: int) -> None:
        raise PermissionError

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    sudo(f'shift; echo "$(ps -o pgid= -p $$) $@" > {tmp_path}/told; exec "$@"')
    monkeypatch.setattr(subprocess.Popen, "send_signal", refused)
    monkeypatch.setattr(command, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.finished(["sleep", "60"])
    group, *told = (tmp_path / "told").read_text().split()
    assert told[:2] == ["kill", "-INT"] and int(group) != os.getpgrp(), "sudo ignores signals from its own group"


@pytest.mark.parametrize(("status", "sentence"), [(2, "steps: must be 1"), (3, "there is no Open vSwitch")])
def test_what_root_would_not_mend_does_not_ask_sudo(
    says: Says, sudo: Says, tmp_path: Path, status: int, sentence: str
) -> None:
    says(f"print('railyard: {sentence}', file=sys.stderr); sys.exit({status})")
    sudo(f"touch {tmp_path}/asked")
    with pytest.raises(errors.RailyardError, match=f"^{sentence}$"):
        command.as_root_if_needed("run", shown=False)
    assert not (tmp_path / "asked").exists()


def test_a_sweep_of_a_mapping_is_to_be_saved_before_root_can_run_it(
    says: Says, sudo: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(REFUSED)
    sudo("echo sudo: a password is required >&2; exit 1")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # as in a notebook
    with pytest.raises(errors.MachineError, match=r" sweep FILE\.yaml --out .*; first save the mapping as FILE\.yaml$"):
        run.sweep({"sweep": "mine"}, out="mine")
