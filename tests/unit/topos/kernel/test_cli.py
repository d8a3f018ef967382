from __future__ import annotations

import pytest

from railyard.errors import CircuitError
from topos.kernel.cli import describe_switch, parse_rewire


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
