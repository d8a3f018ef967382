"""A client of ovsdb-server (RFC 7047) with one connection and one transaction at a time."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

from railyard.errors import MachineError
from topos.kernel.relay import connect_unix

Row = dict[str, Any]
_CLOSED = "the private ovsdb-server closed the connection"


def as_map(values: dict[str, str]) -> list[Any]:
    """A map in the JSON notation of the OVSDB protocol."""
    return ["map", [[key, value] for key, value in values.items()]]


def as_set(values: list[Any]) -> list[Any]:
    """A set in the JSON notation of the OVSDB protocol."""
    return ["set", values]


def insert(table: str, row: Row, name: str | None = None) -> Row:
    """The operation that adds a row; other operations of the same transaction can refer to it by ``name``."""
    return {"op": "insert", "table": table, "row": row} | ({"uuid-name": name} if name else {})


class Ovsdb:
    """The database ``Open_vSwitch`` behind a Unix socket; raises ``MachineError`` for a refused operation."""

    def __init__(self, path: Path, timeout_s: float = 60.0) -> None:
        self._socket = connect_unix(path, timeout_s)
        self._decoder = json.JSONDecoder()
        self._text = codecs.getincrementaldecoder("utf-8")()
        self._buffer = ""
        self._id = 0

    def transact(self, *operations: Row) -> list[Row]:
        """Execute all operations or, if one fails, none; returns the result of each."""
        self._id += 1
        call = {"method": "transact", "params": ["Open_vSwitch", *operations], "id": self._id}
        self._send(call)
        while True:
            message = self._receive()
            if message.get("method") == "echo":
                self._send({"id": message.get("id"), "result": message.get("params"), "error": None})
            elif message.get("id") == self._id:
                return self._result(message)

    @staticmethod
    def _result(message: Row) -> list[Row]:
        results = message.get("result") or []
        if not isinstance(results, list) or not all(isinstance(result, dict) or result is None for result in results):
            raise _not_spoken()
        for result in results:
            if result and "error" in result:
                raise MachineError(f"Open vSwitch refused: {result['error']} ({result.get('details', 'no details')})")
        if message.get("error"):
            raise MachineError(f"Open vSwitch refused: {message['error']}")
        return results

    def _send(self, message: Row) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode())
        except TimeoutError:
            raise MachineError("Open vSwitch did not answer in time") from None
        except ConnectionError:
            raise MachineError(_CLOSED) from None

    def _receive(self) -> Row:
        while True:
            try:
                message, end = self._decoder.raw_decode(self._buffer)
            except RecursionError:
                raise _not_spoken() from None
            except ValueError:
                self._more()
                continue
            self._buffer = self._buffer[end:].lstrip()
            if not isinstance(message, dict):
                raise _not_spoken()
            return message

    def _more(self) -> None:
        try:
            data = self._socket.recv(1 << 18)
            if not data:
                raise MachineError(_CLOSED)
            self._buffer += self._text.decode(data)
        except TimeoutError:
            raise MachineError("Open vSwitch did not answer in time") from None
        except ConnectionError:
            raise MachineError(_CLOSED) from None
        except OSError as error:
            raise MachineError(f"the connection to ovsdb-server ended ({error.strerror})") from None
        except UnicodeDecodeError:
            raise _not_spoken() from None

    def close(self) -> None:
        self._socket.close()


def _not_spoken() -> MachineError:
    return MachineError("ovsdb-server sent a message that is none of its protocol (RFC 7047)")
