"""The page as one file: scripts and styles inside it, and a policy that lets nothing else run and nothing load.

The policy (Content Security Policy Level 3, https://www.w3.org/TR/CSP3/, "hash-source") names the hash of every script
and style, so that a script that a text of the data brought in would not run.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from commands.page.report.record import text

PAGE = Path(__file__).parents[1] / "static"
DATA = "railyard-data"
"""Id of the element that holds the data: gzip-compressed JSON in base64."""
_PIECES = re.compile(
    r'<link rel="stylesheet" href="(?P<style>[\w./-]+)">\n?|<script src="(?P<script>[\w./-]+)"></script>\n?'
)
_HEAD = '<meta charset="utf-8">\n'
_WITHOUT_SCRIPTS = "main, #banner, #skip, #experiment, #state, header .tools { display: none }"
"""Style of a browser that runs no scripts: what they would fill is not shown."""
_ENDS = re.compile("</(script|style)|<!--", re.IGNORECASE)
"""Text that would end a script or style early, or change how it is read."""


def inlined(
    title: str, record: Iterable[str], data: Iterable[bytes], folder: Path = PAGE, own: tuple[str, ...] = ("report",)
) -> Iterator[bytes]:
    """The page of ``folder`` in pieces, with ``record`` (HTML) and ``data`` (base64) in it.

    ``own`` are names of a style and a script that only a report has.
    """
    index = (folder / "index.html").read_text(encoding="utf-8")
    extra = "".join(f'<link rel="stylesheet" href="{name}.css">\n' for name in own)
    index = index.replace("</head>", f"{extra}<noscript><style>{_WITHOUT_SCRIPTS}</style></noscript>\n</head>", 1)
    extra = "".join(f'<script src="{name}.js"></script>\n' for name in own)
    index = index.replace("</body>", f"{extra}</body>", 1)
    index = re.sub("<title>.*?</title>", lambda _: f"<title>{text(title)}</title>", index, count=1)
    hashes: dict[str, list[str]] = {"style": [_hash(_WITHOUT_SCRIPTS)], "script": []}

    def piece(found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        content = _harmless(folder / found[kind])
        hashes[kind].append(_hash(content))
        return f"<{kind}>{content}</{kind}>\n"

    whole = _PIECES.sub(piece, index)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(hashes["script"], hashes["style"])}">\n'
    whole = whole.replace(_HEAD, _HEAD + policy, 1)
    before, first, after = whole.partition("<script>")
    yield before.encode()
    yield from (each.encode("utf-8", "replace") for each in record)
    yield f'<script type="application/json" id="{DATA}">'.encode()
    yield from data
    yield b"</script>\n"
    yield (first + after).encode()


def _harmless(path: Path) -> str:
    content = path.read_text(encoding="utf-8")
    found = _ENDS.search(content)
    if found:
        raise ValueError(f"{path} holds {found[0]!r}, which would end it early inside a page")
    return content


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def _policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    parts = {
        "default-src": "'none'",
        "script-src": " ".join(dict.fromkeys(scripts)),
        "style-src": " ".join(dict.fromkeys(styles)),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())
