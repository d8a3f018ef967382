"""Acts on a live run that a person asks for on its page: they go to the run's REST interface, with its token.

The page gives an act as JSON, and never sees the token::

    {"act": "rewire", "switch": "rail0", "circuits": [[1, 5]], "update": "update"}
    {"act": "fail", "switch": "rail0", "port": 3}        {"act": "restore", "switch": "rail0", "port": 3}
    {"act": "fail-chip", "rank": 5}
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

from controllers.northbound.bodies import read_object
from controllers.northbound.rest_address import LOOPBACK, read_address
from experiments.rest_access import TOKEN_FILE, read_token
from measure.results.folder import is_locked, manifest_of
from measure.results.manifest import REST
from railyard.errors import ConfigError, shortened

MOST_BYTES = 1 << 16
"""Bytes of the longest act."""
ANSWER_S = 60.0
"""How long the REST interface has for its answer, which comes when the switch is tuned."""
_MOST_ANSWER = 1 << 20
_LONGEST_NAME = 100
_ACTS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "rewire": (frozenset({"switch", "circuits"}), frozenset({"update"})),
    "fail": (frozenset({"switch", "port"}), frozenset()),
    "restore": (frozenset({"switch", "port"}), frozenset()),
    "fail-chip": (frozenset({"rank"}), frozenset()),
}
"""The keys that an act must have, and those that it may have."""


class Refused(Exception):
    """An act that was not done, with the ``status`` of HTTP that says whose fault that is; the text is a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Control:
    """Acts on the run whose results are in ``folder``; ``token`` is that of its REST interface (None: it is there)."""

    def __init__(self, folder: Path, token: str | None = None) -> None:
        self._folder = folder
        self._token = token

    def check(self) -> None:
        """Raise ``ConfigError`` unless the run goes on and has a REST interface whose token can be read."""
        manifest = manifest_of(self._folder) or {}
        if not is_locked(self._folder):
            raise ConfigError(f"{self._folder} holds a run that has ended; leave --control out", key="--control")
        if not (manifest.get("experiment") or {}).get("rest"):
            raise ConfigError("the run has no REST interface; start it with --watch --control", key="--control")
        if self._token is None:
            self._token = self._own_token()

    def act(self, body: bytes) -> None:
        """Do what the page asks for in ``body``; ``Refused`` if that is not done."""
        if len(body) > MOST_BYTES:
            raise Refused(413, f"an act is at most {MOST_BYTES} bytes long")
        try:
            verb, path, content = call_of(read_object(body))
        except ConfigError as error:
            raise Refused(400, str(error)) from None
        host, port = self._address()
        try:
            token = self._token or self._own_token()
        except ConfigError as error:
            raise Refused(502, str(error)) from None
        status, answer = _called(host, port, token, verb, path, json.dumps(content))
        if not 200 <= status < 300:
            raise Refused(status if 400 <= status < 600 else 502, _sentence(answer))

    def _own_token(self) -> str:
        file = self._folder / TOKEN_FILE
        if not file.exists():
            raise ConfigError(
                "the run takes its token from a file of its own; give that with --rest-token-file FILE", key="--control"
            )
        return read_token(file)

    def _address(self) -> tuple[str, int]:
        """Where the REST interface of the live run is; ``Refused`` if there is none on this machine."""
        if not is_locked(self._folder):
            raise Refused(409, "the run has ended")
        rest = (manifest_of(self._folder) or {}).get(REST)
        if not isinstance(rest, str):
            raise Refused(503, "the run has no fabric that is up now; try again")
        try:
            host, port = read_address(rest)
        except ConfigError as error:
            raise Refused(502, str(error)) from None
        if ip_address(host).is_unspecified:
            host = "::1" if ":" in host else LOOPBACK
        if not _is_here(host):
            raise Refused(502, f"{host} is not an address of this machine; run railyard watch where the run is")
        return host, port


def call_of(act: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The call of the REST interface for an act: verb, path and body. ``ConfigError`` for an act that is none.

    Numbers and circuits are checked by the REST interface, whose sentence the page gets.
    """
    fields = dict(act)
    name = fields.pop("act", None)
    if not isinstance(name, str) or name not in _ACTS:
        raise ConfigError(f"must be one of {', '.join(_ACTS)}, not {_shown(name)}", key="act")
    needed, possible = _ACTS[name]
    for key in sorted(needed - fields.keys()):
        raise ConfigError(f"is missing; act {name} needs {' and '.join(sorted(needed))}", key=key)
    for key in sorted(fields.keys() - needed - possible):
        raise ConfigError(f"is not a key of act {name}; leave it out", key=shortened(key))
    switch = fields.pop("switch", "")
    if not isinstance(switch, str) or len(switch) > _LONGEST_NAME or ("switch" in needed and not switch):
        raise ConfigError(f"must be the name of a switch, not {_shown(switch)}", key="switch")
    if name == "rewire":
        return "PUT", f"/circuits/{quote(switch, safe='')}", fields
    if name == "fail-chip":
        return "POST", "/faults", {"cause": "reported on the page", **fields}
    return "POST", "/faults", {"switch": switch, "state": "failed" if name == "fail" else "restored", **fields}


def _shown(value: object) -> str:
    return shortened(json.dumps(value))


def _is_here(host: str) -> bool:
    """Whether ``host`` is an address of this machine: a socket can have it."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as tried:
            tried.bind((host, 0))
    except OSError:
        return False
    return True


def _called(host: str, port: int, token: str, verb: str, path: str, body: str) -> tuple[int, bytes]:
    """The status and the body of the answer of the REST interface; ``Refused`` without an answer."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with closing(HTTPConnection(host, port, timeout=ANSWER_S)) as connection:
            connection.request(verb, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_ANSWER)
    except TimeoutError:
        raise Refused(504, f"the run did not answer within {ANSWER_S:g} s; the act may still follow") from None
    except (OSError, HTTPException) as error:
        raise Refused(
            502, f"the REST interface of the run cannot be reached: {error or type(error).__name__}"
        ) from None


def _sentence(answer: bytes) -> str:
    try:
        found = json.loads(answer)["error"]
    except (ValueError, LookupError, TypeError):
        found = None
    return found if isinstance(found, str) else "the REST interface of the run refused, and did not say why"
