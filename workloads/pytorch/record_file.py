"""The record of a PyTorch step as a YAML file, which people read and change.

::

    record: {name: job, ranks: 8, gpus_per_server: 2, step: 2}
    roles:
      tp: {dimension: tp, groups: ['0,1 *4/2']}             # 4 groups: 0,1 and those shifted by 2, 4 and 6
      world.small: {dimension: dp, front_end: true, groups: [0-7]}
    classes:
    - ranks: 0-6/2,1-7/2                                    # 0, 2, 4, 6, 1, 3, 5, 7
      calls: |
        0.0012: all_gather tp 4194304 as ag.F0.layers.0
        0.003 after 0: all_reduce world.small 4
        0.001+0.0015 after 0,1: end

The second call comes after 3 ms of compute, which begins when call 0, the first one, is over. The last line is the end
of the step: 1 ms of compute at once, and 1.5 ms when both calls are over.
A call may end with ``root POSITION`` or ``uneven NAME``, before its ``as NAME``; section ``uneven`` has the matrices by
name, a line for each member with its bytes to every member.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

from pydantic import Field, ValidationError

from railyard.errors import ConfigError, in_file, nearest
from railyard.ownership import replace_file
from railyard.reading import open_at_once
from railyard.validation import Section, config_error, shown
from railyard.yaml_file import read_mapping, written_mapping
from workloads.formats.reading import LONGEST_S, MOST_MESSAGE_BYTES
from workloads.program import Dimension
from workloads.pytorch.record import ClassCall, GroupRole, Kind, Matrix, RankClass, Record
from workloads.schedule import CollectiveKind

MOST_BYTES = 16 << 20
MOST_RANKS = 1 << 16
MOST_MEMBERS = 1 << 22
"""Most members of all groups together."""
_KINDS: dict[str, Kind] = {kind: kind for kind in (*get_args(CollectiveKind), "send", "recv")}
_NUMBER = r"\d{1,10}(?:\.\d{1,20})?(?:e[+-]?\d{1,2})?"
_CALL = re.compile(
    rf"(?:(?P<ahead>{_NUMBER})\+)?(?P<seconds>{_NUMBER})(?: after (?P<waits>[0-9,]+))?: "
    r"(?:end|(?P<kind>\w+) (?P<role>\S+) (?P<bytes>\d{1,16})"
    r"(?: root (?P<root>\d{1,6}))?(?: uneven (?P<uneven>\S+))?(?: as (?P<name>\S.*))?)"
)
_RANKS = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?:/(\d{1,6}))?)?")
_GROUPS = re.compile(r"([\d,/-]+)(?: \*(\d{1,6})/(\d{1,6}))?")
_TWO = "must be groups of two or more ranks (of dimension pp, of two), each rank in one of them"


class _Head(Section):
    name: Annotated[str, Field(min_length=1, max_length=100)]
    ranks: int = Field(ge=1, le=MOST_RANKS)
    gpus_per_server: int = Field(default=1, ge=1, le=MOST_RANKS)
    step: int = Field(default=0, ge=0, le=10**9)
    port_gbps: float = Field(default=12.5, ge=1e-6, le=1e6)
    scale_up_gbps: float = Field(default=2400.0, ge=1e-6, le=1e6)


class _Groups(Section):
    dimension: Dimension
    front_end: bool = False
    groups: tuple[str, ...] = Field(min_length=1)


class _Calls(Section):
    ranks: int | str
    calls: str


class _Keys(Section):
    record: _Head
    roles: dict[str, _Groups] = Field(default_factory=dict)
    classes: tuple[_Calls, ...] = Field(min_length=1)
    uneven: dict[str, str] = Field(default_factory=dict)


def is_record(path: Path) -> bool:
    """Whether a YAML file is a record: its first key says so. False for a file that cannot be read."""
    try:
        with open(path, "rb", opener=open_at_once) as file:
            begins = file.read(4096)
    except (OSError, ValueError):
        return False
    lines = (line for line in begins.splitlines() if line.strip() and not line.startswith((b"#", b"---")))
    return next(lines, b"").startswith(b"record:")


def write_record(record: Record, path: Path, *, links: bool = False) -> None:
    """Write the file that ``read_record`` reads as this record; ``links`` as of ``replace_file``."""
    data = {
        "record": {key: getattr(record, key) for key in _Head.model_fields},
        "roles": {
            name: {
                "dimension": role.dimension,
                **({"front_end": True} if role.front_end else {}),
                "groups": list(_rows(role.groups)),
            }
            for name, role in record.roles.items()
        },
        "classes": [{"ranks": _row(ranks.ranks), "calls": "".join(_lines(ranks))} for ranks in record.classes],
        "uneven": {
            name: "".join(" ".join(map(str, row)) + "\n" for row in matrix) for name, matrix in record.uneven.items()
        },
    }
    replace_file(path, written_mapping({key: value for key, value in data.items() if value}), links=links)


def _lines(ranks: RankClass) -> Iterator[str]:
    for call in ranks.calls:
        words = f"{call.kind} {call.role} {call.bytes}" + (f" root {call.root}" if call.root else "")
        words += (f" uneven {call.uneven}" if call.uneven else "") + (f" as {call.name}" if call.name else "")
        yield _line(call.seconds, call.waits, call.ahead, words)
    yield _line(ranks.end_seconds, ranks.end_waits, ranks.end_ahead, "end")


def _line(seconds: float, waits: tuple[int, ...], ahead: float, words: str) -> str:
    after = f" after {','.join(map(str, waits))}" if waits else ""
    return (f"{ahead!r}+" if ahead else "") + f"{seconds!r}{after}: {words}\n"


def _rows(groups: Sequence[tuple[int, ...]]) -> Iterator[str]:
    """Groups as text; those that are one group shifted again and again are one row."""
    start = 0
    while start < len(groups):
        first, end = groups[start], start + 1
        shift = groups[end][0] - first[0] if end < len(groups) else 0
        while shift > 0 and end < len(groups) and groups[end] == tuple(r + shift * (end - start) for r in first):
            end += 1
        yield _row(first) + (f" *{end - start}/{shift}" if end > start + 1 else "")
        start = end


def _row(ranks: Sequence[int]) -> str:
    parts, start = [], 0
    while start < len(ranks):
        first, end = ranks[start], start + 1
        step = ranks[end] - first if end < len(ranks) else 0
        while step > 0 and end < len(ranks) and ranks[end] == first + step * (end - start):
            end += 1
        end = end if end > start + 2 else start + 1
        parts.append(f"{first}" + (f"-{ranks[end - 1]}" + (f"/{step}" if step > 1 else "") if end > start + 1 else ""))
        start = end
    return ",".join(parts)


def read_record(path: Path) -> Record:
    """Read the record in a YAML file; ``ConfigError`` names the file and the key at fault, of a call its line too."""
    data = read_mapping(path, "the record of a PyTorch step", "record, roles, classes", MOST_BYTES)
    try:
        keys = _Keys.model_validate(data)
    except ValidationError as error:
        raise config_error(error, _Keys, "a record", source=str(path)) from None
    with in_file(str(path)):
        head, room = keys.record, MOST_MEMBERS
        roles: dict[str, GroupRole] = {}
        for name, role in keys.roles.items():
            groups = _groups(role, head.ranks, f"roles.{name}.groups")
            roles[name] = GroupRole(role.dimension, groups, role.front_end)
            room -= sum(map(len, groups))
            if room < 0:
                raise ConfigError(f"have more than {MOST_MEMBERS} members in all groups together", key="roles")
        uneven = {name: _matrix(text, f"uneven.{name}") for name, text in keys.uneven.items()}
        classes = tuple(
            _class(ranks, f"classes.{number}", head.ranks, roles, uneven) for number, ranks in enumerate(keys.classes)
        )
        if sorted(rank for ranks in classes for rank in ranks.ranks) != list(range(head.ranks)):
            raise ConfigError(f"must have each of the {head.ranks} ranks once", key="classes")
        return Record(roles=roles, classes=classes, uneven=uneven, **head.model_dump())


def _groups(role: _Groups, ranks: int, key: str) -> tuple[tuple[int, ...], ...]:
    groups: list[tuple[int, ...]] = []
    taken: set[int] = set()
    for row in role.groups:
        match = _GROUPS.fullmatch(row)
        if match is None:
            raise ConfigError(f"must be rows such as 0-7, '0,4' or '0-7 *4/8', not {shown(row)}", key=key)
        first, times, shift = _ranks_in(match[1], ranks, key), int(match[2] or 1), int(match[3] or 1)
        if max(first) + (times - 1) * shift >= ranks:
            raise ConfigError(f"ends with a rank beyond the {ranks} ranks: {shown(row)}", key=key)
        wrong = len(first) != 2 if role.dimension == "pp" else len(first) < 2
        if wrong or times * len(first) > ranks:  # more would share ranks
            raise ConfigError(_TWO, key=key)
        for number in range(times):
            groups.append(tuple(rank + number * shift for rank in first))
            if len(set(groups[-1])) < len(first) or not taken.isdisjoint(groups[-1]):
                raise ConfigError(_TWO, key=key)
            taken.update(groups[-1])
    return tuple(groups)


def _ranks_in(row: str, ranks: int, key: str) -> tuple[int, ...]:
    named: list[int] = []
    for part in row.split(","):
        match = _RANKS.fullmatch(part)
        if match is None or int(match[2] or match[1]) >= ranks or match[3] == "0" or len(named) > ranks:
            raise ConfigError(f"must be ranks below {ranks} such as 0-7, 0-6/2 or 0,4, not {shown(row)}", key=key)
        named += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
    if not named:
        raise ConfigError(f"names no rank: {shown(row)}", key=key)
    return tuple(named)


def _matrix(text: str, key: str) -> Matrix:
    rows = [row.split() for row in text.splitlines()]
    sizes = tuple(tuple(int(size) for size in row if re.fullmatch(r"\d{1,15}", size)) for row in rows)
    if not sizes or any(len(row) != len(rows) for row in (*rows, *sizes)) or not any(map(any, sizes)):
        raise ConfigError("must have as many whole numbers of bytes in each line as lines, not all of them 0", key=key)
    return sizes


def _class(given: _Calls, key: str, ranks: int, roles: dict[str, GroupRole], uneven: dict[str, Matrix]) -> RankClass:
    own, calls = _ranks_in(str(given.ranks), ranks, f"{key}.ranks"), list[ClassCall]()
    members = {
        name: min(len(role.group_of[rank]) for rank in own)
        for name, role in roles.items()
        if role.group_of.keys() >= set(own)
    }
    lines = given.calls.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            match = _CALL.fullmatch(line.strip())
            if match is None or (match["kind"] is None) != (number == len(lines)):
                example = "0.001 after 2,3: all_gather dp 4096" if number < len(lines) else "0.001 after 2,3: end"
                raise ConfigError(f"must be like {example}")
            seconds, ahead = float(match["seconds"]), float(match["ahead"] or 0)
            waits = tuple(map(int, re.findall(r"\d+", match["waits"] or "")))
            if seconds + ahead > LONGEST_S or any(wait >= number - 1 for wait in waits):
                raise ConfigError(f"must have seconds up to {LONGEST_S:g}, and follow calls above it (the first is 0)")
            if number == len(lines):
                return RankClass(own, tuple(calls), seconds, waits, ahead)
            calls.append(replace(_call(match, roles, members, uneven), seconds=seconds, waits=waits, ahead=ahead))
        except ConfigError as error:
            raise ConfigError(f"line {number} {error.message}: {shown(line)}", key=f"{key}.calls") from None
    raise ConfigError("must end with a line such as 0.001: end", key=f"{key}.calls")


def _call(
    match: re.Match[str], roles: Mapping[str, GroupRole], members: Mapping[str, int], uneven: Mapping[str, Matrix]
) -> ClassCall:
    """The call of a line; ``members`` are the least of a group of the ranks in each role that they all have."""
    kind, least = _KINDS.get(match["kind"]), members.get(match["role"])
    if kind is None:
        raise ConfigError(f"must have one of the kinds {', '.join(_KINDS)}{nearest(match['kind'], _KINDS)}")
    if least is None:
        raise ConfigError("must have a role of section roles in which all its ranks have a group")
    if (kind in ("send", "recv")) != (roles[match["role"]].dimension == "pp"):
        raise ConfigError("must have a role of dimension pp for send and recv, and for these alone")
    size, root, name = int(match["bytes"]), int(match["root"] or 0), match["uneven"] or ""
    if size > MOST_MESSAGE_BYTES or root >= least:
        raise ConfigError(f"must have at most {MOST_MESSAGE_BYTES} bytes, and a root of 0 to {least - 1}")
    if name and (kind != "all_to_all" or len(uneven.get(name, ())) != least):
        raise ConfigError(f"must be an all_to_all with a matrix of section uneven of {least} members")
    return ClassCall(kind, match["role"], size, name=match["name"] or "", root=root, uneven=name)
