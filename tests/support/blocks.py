"""The fenced blocks of a document, what a reader does with each, and whether an output is the one that is shown.

| block | the reader |
|---|---|
| `console` | types what follows `$ ` (or `mininet> `), and sees the other lines; a line `...` stands for any lines |
| `sh`, `bash` | types each line; nothing is shown |
| with `title="FILE"` after the language | saves it as FILE, which the text above names |
| `python` without a title | runs it |

A comment in the line above a block, which readers do not see, says what is special, after `<!-- block: `:

- `status 2 -->`: the last command ends with this status (others with 0, or 8: not faithful)
- `exact -->`: numbers may not differ either, as those of the model
- `shown by tests/integration/test_x.py::test_name -->`: that test runs it instead, as it takes long or needs more
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ELLIPSIS = "..."
PROMPTS = ("$ ", "mininet> ")
_NOTE = re.compile(r"<!-- block: (exact|status \d+|shown by \S+) -->\n?")
_TITLE = re.compile(r'title="([\w.-]+)"')
_NUMBER = re.compile(r"(?:(?<=\bx)|(?<![\w.-]))[+-]?\d+(?:\.\d+)?(?!\.?\d|-\d|(?!(?:ms|us|s)\b)[A-Za-z_])")
_TOKEN = re.compile(r"[\w-]{40,}")
"""The secret in the address of a page."""
_VERDICT = re.compile(r"Measured again|Faithful:|NOT FAITHFUL|Not judged:")
_GOES_ON = {"ver": re.compile(r"(?!Report \(|Results in)"), "  [": re.compile(" {4}"), "  o": re.compile(" {6}")}
"""Which lines belong to the unit before, by the beginning of its key: a verdict, the progress of a point, and a check.
"""


@dataclass(frozen=True)
class Block:
    """A fenced block; ``first`` is the number of its first line in the document, from 0; ``text`` ends in a newline."""

    language: str
    title: str | None
    text: str
    first: int
    notes: tuple[str, ...] = ()
    before: str = ""
    """The text of the document above it, since the block before."""

    def note(self, word: str) -> str | None:
        """What follows ``word`` in a note, or None without that note."""
        return next((note.removeprefix(word).strip() for note in self.notes if note.startswith(word)), None)


@dataclass(frozen=True)
class Step:
    """A line that is typed after ``prompt``, and what is shown below it."""

    prompt: str
    typed: str
    shown: tuple[str, ...]


def blocks(document: str) -> list[Block]:
    """The fenced blocks of a document, in order; ``AssertionError`` names a note that nobody understands."""
    found: list[Block] = []
    lines, end, notes = document.splitlines(keepends=True), 0, ""
    for token in MarkdownIt("commonmark").parse(document):
        if token.type == "html_block":
            notes = token.content
        elif token.type == "fence" and token.map:
            language, _, rest = token.info.partition(" ")
            title = _TITLE.search(rest)
            before = "".join(lines[end : token.map[0]])
            known = tuple(_NOTE.findall(notes))
            assert "<!-- block:" not in _NOTE.sub("", notes), f"line {token.map[0]}: {notes.strip()} is no note"
            found.append(
                Block(language, title.group(1) if title else None, token.content, token.map[0] + 1, known, before)
            )
            end = token.map[1]
        if token.type != "html_block":
            notes = ""
    return found


def steps(block: Block) -> list[Step]:
    """What is typed in a ``console``, ``sh`` or ``bash`` block, in order."""
    if block.language != "console":
        whole = block.text.replace("\\\n", " ")
        return [Step("$ ", line, (ELLIPSIS,)) for line in whole.splitlines() if line and not line.startswith("#")]
    found: list[Step] = []
    for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
        prompt = next((prompt for prompt in PROMPTS if line.startswith(prompt)), None)
        if prompt is not None:
            found.append(Step(prompt, line.removeprefix(prompt), ()))
        else:
            assert found, f"line {block.first}: the first line of a console block is typed, after $"
            found[-1] = Step(found[-1].prompt, found[-1].typed, (*found[-1].shown, line))
    return found


def renewed(shown: Sequence[str], printed: Sequence[str], exact: bool = False) -> list[str] | None:
    """The printed lines in place of those shown, lines ``...`` kept; None if they differ in more than numbers.

    Not compared is what a busy machine changes: the verdict, and the progress of measurements that are made again.
    """
    wanted, real = _units(shown, exact), _units(printed, exact)
    places = _places([key for key, _ in wanted], [key for key, _ in real])
    if places is None:
        return None
    return [line for place in places for line in ([ELLIPSIS] if place is None else real[place][1])]


def _places(wanted: Sequence[str], real: Sequence[str]) -> list[int | None] | None:
    """For each wanted line its place among the real ones (None for ``...``); None if they do not match."""
    ends: list[dict[int, list[int | None]]] = [{0: []}]  # after each wanted line: how far one may be, and by which way
    for key in wanted:
        following: dict[int, list[int | None]] = {}
        for at, way in ends[-1].items():
            if key == ELLIPSIS:
                for further in range(at, len(real) + 1):
                    following.setdefault(further, [*way, None])
            elif at < len(real) and real[at] == key:
                following.setdefault(at + 1, [*way, at])
        ends.append(following)
    return ends[-1].get(len(real))


def _units(lines: Sequence[str], exact: bool) -> list[tuple[str, list[str]]]:
    """The lines by what is compared: a key, and the lines that it stands for."""
    found: list[tuple[str, list[str]]] = []
    for line in map(str.rstrip, lines):
        before = found[-1] if found else ("", [])
        if line.startswith("  disturbed, so it is measured again"):
            found.pop()
        elif (goes_on := _GOES_ON.get(before[0][:3])) and goes_on.match(line):
            before[1].append(line)
        elif _VERDICT.match(line):
            found.append(("verdict", [line]))
        else:
            found.append((_key(line, exact), [line]))
    return found


def _key(line: str, exact: bool) -> str:
    """What a line must have in common with the one shown: all but numbers, widths of columns and the verdict."""
    if progress := re.match(r"  \[\d+/\d+.*?(?=: (?:step|done))", line):  # its sentence may go on in the next line
        return "  [" + _NUMBER.sub("#", progress.group())
    if check := re.match(r"  (?:ok|NO)  (\D*)", line):  # of a verdict on a lab, which may name other programs
        return "  ok  " + check.group(1)
    line = re.sub(r"\bNO$", "yes", re.sub(r": NOT FAITHFUL$", ": faithful", line))
    return line if exact else re.sub(r"\s+", " ", _NUMBER.sub("#", _TOKEN.sub("#", line)))


def replaced(document: str, block: Block, outputs: Sequence[Sequence[str]]) -> str:
    """The document with these outputs below the typed lines of a ``console`` block."""
    lines = document.splitlines(keepends=True)
    fence = lines[block.first - 1]
    indent = fence[: len(fence) - len(fence.lstrip())]
    new, left, continued = [], list(outputs), False
    for line in block.text.splitlines(keepends=True):
        if continued or line.startswith(PROMPTS):
            new.append(line)
            continued = line.endswith("\\\n")
            if not continued:
                new += [f"{shown}\n" for shown in left.pop(0)]
    last = block.first + block.text.count("\n")
    return "".join([*lines[: block.first], *(indent * (line != "\n") + line for line in new), *lines[last:]])


def node(root: Path, name: str) -> bool:
    """Whether the test that a note names (``FILE::FUNCTION``) exists."""
    file, _, function = name.partition("::")
    path = root / file
    return path.is_file() and re.search(rf"^def {re.escape(function)}\(", path.read_text(), re.MULTILINE) is not None
