"""Plain data becomes a dataclass, or one sentence says which key is wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from railyard.errors import ConfigError
from railyard.protocol import to_json
from railyard.validation import Whole, from_plain, matching


@dataclass(frozen=True)
class Wheel:
    """A part that things have several of."""

    spokes: Whole
    name: str = ""


@dataclass(frozen=True)
class Cart:
    """A thing with parts."""

    wheels: tuple[Wheel, ...]
    spare: Wheel | None = None


wheels = st.builds(Wheel, st.integers(0, 99), st.text(st.characters(exclude_categories=["Cs"]), max_size=5))


@given(st.builds(Cart, st.lists(wheels, max_size=3).map(tuple), st.none() | wheels))
def test_what_is_written_is_read_back(cart: Cart) -> None:
    assert from_plain(Cart, asdict(cart), "a cart") == cart
    assert from_plain(Cart, to_json(cart), "a cart") == cart


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({}, "cart.json: wheels: is missing; a cart needs it"),
        ({"wheels": [], "sail": 1}, "cart.json: sail: there is no such key; the keys here are spare, wheels"),
        (
            {"wheels": [{"spokes": 3, "tyre": 1}]},
            "cart.json: wheels.0.tyre: there is no such key; the keys here are name, spokes",
        ),
        ({"wheels": [], "spare": {"spokes": -1}}, "spare.spokes: must be at least 0, not -1"),
        ({"wheels": 5}, "cart.json: wheels: must be a list such as [a, b], not 5"),
        ([], "cart.json: must be a mapping of keys"),
    ],
)
def test_what_is_wrong_is_named(data: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_plain(Cart, data, "a cart", "cart.json")
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_a_text_that_is_no_json_is_said() -> None:
    with pytest.raises(ConfigError, match=r"^cart\.json: invalid JSON: "):
        from_plain(Cart, b"{", "a cart", "cart.json")


@dataclass(frozen=True)
class Label:
    """Text and lists with bounds."""

    code: Annotated[str, matching("[a-z]{2}", "two small letters")] = "ab"
    text: Annotated[str, Field(min_length=1, max_length=3)] = "a"
    parts: Annotated[tuple[int, ...], Field(max_length=2)] = ()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"code": "../../evil"}, "code: must be two small letters, not '../../evil'"),
        ({"code": "ab\n"}, "code: must be two small letters, not 'ab\\n'"),
        ({"text": ""}, "text: must have at least 1 character, not ''"),
        ({"text": "abcd"}, "text: must have at most 3 characters, not 'abcd'"),
        ({"parts": [1, 2, 3]}, "parts: must have at most 2 entries"),
    ],
)
def test_bounds_of_text_and_lists_are_in_words(data: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_plain(Label, data, "a label")
    assert str(caught.value) == sentence
