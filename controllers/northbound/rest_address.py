"""The address that a REST interface listens on: IP:PORT, with an IPv6 address in brackets."""

from __future__ import annotations

import errno
import re
import socket
from ipaddress import ip_address

from railyard.errors import ConfigError
from railyard.validation import shown

LOOPBACK = "127.0.0.1"
MOST_WAITING = 64
"""Connections that wait until a server accepts them."""


def read_address(text: str) -> tuple[str, int]:
    """The host and the port of an address such as 127.0.0.1:8080 or [::1]:8080; ``ConfigError`` for another text.

    Without a host, and for localhost, the host is that of the loopback interface. Port 0 stands for any free one.
    """
    found = re.fullmatch(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<four>[^:\[\]]*)):(?P<port>[0-9]{1,5})", text)
    if found is not None and int(found["port"]) < 1 << 16:
        host = found["six"] or (LOOPBACK if found["four"] in ("", "localhost") else found["four"])
        try:
            if ip_address(host).version == (4 if found["six"] is None else 6):
                return host, int(found["port"])
        except ValueError:
            pass
    raise ConfigError(f"must be IP:PORT such as {LOOPBACK}:8080 or [::1]:8080, not {shown(text)}", key="rest")


def written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reserve(address: str) -> socket.socket:
    """A socket that listens on ``address`` for one server after another; no other program can get the port meanwhile.

    A connection that comes while there is no server waits for the next one, until the socket is closed.
    ``ConfigError`` (key ``rest``) says what would work if the port cannot be had.
    """
    host, port = read_address(address)
    try:
        return listening(host, port)
    except OSError as error:
        raise ConfigError(cannot_listen(host, port, error), key="rest") from None


def listening(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(MOST_WAITING)
    except OSError:
        made.close()
        raise
    return made


def cannot_listen(host: str, port: int, error: OSError) -> str:
    """The sentence about an address that a server cannot listen on."""
    address = written(host, port)
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use by another program; give another port, or port 0 for any free one"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{address} is not an address of this machine; give one of its own, such as {LOOPBACK}:{port}"
    return f"{address} cannot be listened on ({error.strerror}); give another address, such as {LOOPBACK}:8080"
