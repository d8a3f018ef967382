"""A policy of the command line is tried before anything is brought up: it must load, fit the fabric, and answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.run import as_typed, experiment_of, parser_of
from controllers.policies.catalog import POLICIES
from experiments import rehearsal
from experiments.registry import find
from railyard.errors import ConfigError, MachineError

RAILS = ("rails", "--workload", "smoke", "--delays", "10", "--policy")
FAILOVER = ("failover", "--policy")
OWN = """
from controllers.policies.opus import OpusPolicy; from controllers.policies.policy import Policy


class Made(OpusPolicy):
    def __init__(self, plan):
        raise ValueError("no plan")


class Starts(OpusPolicy):
    def start(self, groups):
        return 1 / 0


class Wants(OpusPolicy):
    def wanted(self, group, current):
        return current[group.nonsense]


class Exits(OpusPolicy):
    def start(self, groups):
        raise SystemExit(4)


class Lacks(OpusPolicy):
    def start(self, groups):
        raise NotImplementedError


class Empty(Policy):
    pass


class StartsNothing(OpusPolicy):
    def start(self, groups):
        return None


class WantsList(OpusPolicy):
    def wanted(self, group, current):
        return [current]


class WantsText(OpusPolicy):
    def wanted(self, group, current):
        return {"rail0": "x"}


class WantsElsewhere(OpusPolicy):
    def wanted(self, group, current):
        return {"rail77": next(iter(current.values()))}


class NeedsMore(OpusPolicy):
    def start(self, groups):
        from railyard.errors import MachineError
        raise MachineError("no memory is left")
"""


def check(*words: str) -> None:
    """Check the experiment of a command line as ``railyard run`` does before it asks for root."""
    kind = find(words[0])
    options = parser_of(kind).read(words[1:])
    try:
        experiment_of(kind, options).check()
    except ConfigError as error:
        raise as_typed(error, kind, options) or error from None


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Made", r"Made failed in line 7 of own\.py: ValueError: no plan"),
        ("Starts", r"Starts failed in line 12 of own\.py: ZeroDivisionError: division by"),
        ("Exits", r"Exits failed in line 22 of own\.py: SystemExit: 4$"),
        ("Lacks", r"Lacks failed in line 27 of own\.py: NotImplementedError$"),
        ("Wants", r"Wants failed in line 17 of own\.py: AttributeError: "),
        ("StartsNothing", "StartsNothing: method start returned None; return a dict: switch name -> Matching"),
        ("WantsList", r"WantsList: method wanted returned \[.*; return a dict: switch name -> Matching"),
        ("WantsText", r"WantsText: method wanted returned {'rail0': 'x'}; return a Matching for switches of rail0"),
        ("WantsElsewhere", r"WantsElsewhere: method wanted returned {'rail77': Matching.*; return a Matching for "),
    ],
)
def test_a_policy_that_fails_or_returns_no_circuits_is_refused_with_its_line_or_method(
    name: str, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    for words in (RAILS, FAILOVER) if name in ("Made", "Starts", "Exits", "Lacks") else (RAILS,):
        with pytest.raises(ConfigError, match=f"^--policy: .*own.py:{sentence}"):
            check(*words, f"{file}:{name}")
    with pytest.raises(MachineError, match="no memory is left"):
        check(*RAILS, f"{file}:NeedsMore")


def test_a_policy_without_the_one_method_is_told_its_name(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    with pytest.raises(ConfigError, match=r"^--policy: Empty must define wanted$"):
        check(*RAILS, f"{file}:Empty")


def test_a_policy_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rehearsal, "PATIENCE_S", 0.05)
    slow = tmp_path / "slow.py"
    slow.write_text(OWN.replace("return 1 / 0", "import time; time.sleep(0.5); return super().start(groups)"))
    check(*RAILS, f"{slow}:Starts")
    assert f"railyard: {slow}:Starts has not answered for 0.05 s" in capsys.readouterr().err
    check(*RAILS, "opus")
    assert capsys.readouterr().err == ""


def test_policies_that_fit_are_not_refused() -> None:
    for name in set(POLICIES) - {"one-shot", "static", "deciding", "morphlux", "torus", "migrate"}:
        check(*RAILS, name)
    check(*FAILOVER, "morphlux")
