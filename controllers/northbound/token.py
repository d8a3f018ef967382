"""The token of the REST interface, which every call must have."""

from __future__ import annotations

import re
import secrets

MOST_TOKEN = 1000
"""Characters of the longest token."""


def new_token() -> str:
    """A random token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    """Whether ``text`` can be sent in a header as a token: printable ASCII characters without spaces."""
    return re.fullmatch(f"[!-~]{{1,{MOST_TOKEN}}}", text) is not None
