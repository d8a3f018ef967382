"""Some patterns of the framework's switch tester; ``tests/support/openflow/switch_tester.py`` runs all of them."""

from __future__ import annotations

import pytest
from openflow.switch_tester import compare, patterns

pytestmark = [pytest.mark.root, pytest.mark.beside]

SOME = ("match/00_IN_PORT", "match/03_ETH_DST", "action/00_OUTPUT", "action/17_PUSH_VLAN")


def test_the_switch_tester_says_the_same_of_every_datapath() -> None:
    files = [patterns() / "of13" / f"{name}.json" for name in SOME]
    said = compare(["ovs", "bpf"], "of13", files, limit_s=100)
    assert len(said) == 24
    assert {test: results for test, results in said.items() if results != ["OK"] * 2} == {}
