from __future__ import annotations

from commands.page.view.labels import FIRST, LONGEST, MOST, OTHERS, Labels


def test_a_text_has_one_number() -> None:
    labels = Labels()
    assert labels("a") == labels("a") == 1 and labels("b") == 2
    assert labels.texts == [FIRST, "a", "b"]


def test_a_long_text_is_cut_and_too_many_share_a_number() -> None:
    labels = Labels()
    assert len(labels.texts[labels("x" * 1000)]) == LONGEST
    assert labels("x" * 1000) == labels("x" * 999) == 1
    numbers = [labels(f"name {n}") for n in range(MOST + 100)]
    assert len(labels.texts) == MOST + 1 and numbers[-1] == MOST and labels.texts[-1] == OTHERS
    assert labels("name 5") == numbers[5]
