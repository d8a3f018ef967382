"""``railyard export``: RO-Crate metadata beside the results of a run: its files, the run, and the software of the run.

Source: RO-Crate Metadata Specification 1.1 (https://w3id.org/ro/crate/1.1) and its profile Process Run Crate 0.5
(https://w3id.org/ro/wfrun/process/0.5), which describes a run as a ``CreateAction``.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from experiments.parser import Parser
from experiments.rest_access import TOKEN_FILE
from measure.results.folder import is_locked
from measure.results.foreign import reading
from measure.results.partial import COMPLETE, partial
from measure.results.results import Results
from railyard import AUTHORS, LICENSE
from railyard.errors import PARTIAL_EXIT_STATUS, ConfigError
from railyard.point_folder import EVENTS, POINTS, PREDICTED
from railyard.reading import files_below

CRATE = "ro-crate-metadata.json"
_VERSION = "https://w3id.org/ro/crate/1.1"
_PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
_TERMS = "https://w3id.org/ro/terms/workflow-run/context"
_RUN, _SOFTWARE, _AUTHORS = "#run", "#railyard", "#authors"
_SPDX = "https://spdx.org/licenses/"
_LICENSE = f"{_SPDX}{LICENSE}"
_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".csv": "text/csv",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".pcapng": "application/x-pcapng",
    ".log": "text/plain",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".xml": "application/xml",
    ".html": "text/html",
    ".py": "text/x-python",
}
_ABOUT = {
    "manifest.json": "settings, scale, fabrics, versions, machine and end of the run",
    EVENTS: "the timeline of a point, one event per line",
    PREDICTED: "the timeline that the model predicted for a point, before it was measured",
    "summary.json": "one row per measured point, in units of the real system",
    "summary.csv": "the numbers and texts of the rows",
    "trace.json": "the timeline in Chrome's trace format",
    "report.html": "tables, figures, verdict and time lines in one page that needs no network",
}
Entity = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Write the metadata of a results folder into it; returns 0, or the exit status of partial results."""
    parser = Parser(
        prog="railyard export",
        description="Describe a results folder as an RO-Crate 1.1: ro-crate-metadata.json in it\n"
        "names its files, the command line, the software and the machine of the run.",
    )
    parser.add_argument("results", type=Path, metavar="FOLDER", help="results folder of a run (its --out)")
    parser.add_argument(
        "--license",
        metavar="ID",
        help="licence of the results, by SPDX such as CC-BY-4.0, or its address (default none)",
    )
    options = parser.read(arguments)
    folder, licensed = options.results, None
    if options.license is not None:
        try:
            licensed = licence_address(options.license)
        except ValueError as error:
            raise ConfigError(str(error), key="--license") from None
    results = Results.open(folder)
    with reading(folder):
        sentence = partial(results.manifest(), results.rows(), under_way=is_locked(folder))
        metadata = _metadata(results, sentence, licensed)
    try:
        path = results.write(CRATE, metadata)
    except PermissionError:
        raise ConfigError(f"{folder} belongs to another user; use sudo, or copy it", key="results") from None
    if sentence is not None:
        print(sentence)
    print(path)
    return 0 if sentence is None else PARTIAL_EXIT_STATUS


def _metadata(results: Results, sentence: str | None, licensed: str | None) -> str:
    crate = crate_of(
        results.manifest(),
        held_files(results.folder),
        published=time.strftime("%Y-%m-%d"),
        partial=sentence,
        under_way=is_locked(results.folder),
        licensed=licensed,
    )
    return json.dumps(crate, indent=2) + "\n"


def held_files(folder: Path) -> Iterator[HeldFile]:
    """The files of a results folder in order, but for the metadata, drafts, links and the token of REST."""
    for path in sorted(files_below(folder)):
        name = path.relative_to(folder)
        if str(name) in (CRATE, TOKEN_FILE) or path.name.startswith(".") or path.is_symlink() or not path.is_file():
            continue
        yield HeldFile(PurePosixPath(name), os.stat(path).st_size)


# ---- the metadata ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldFile:
    """A file of a results folder: its path in the folder, and its size."""

    path: PurePosixPath
    bytes: int


def crate_of(
    manifest: Mapping[str, Any],
    files: Iterable[HeldFile],
    *,
    published: str,
    partial: str | None,
    under_way: bool,
    licensed: str | None = None,
) -> Entity:
    """The metadata as plain data for JSON.

    ``published`` is the day of the export (``2026-01-31``), ``partial`` the sentence about results that are not
    complete, ``licensed`` the address of the licence of the results, if they have one.
    """
    name = manifest["experiment"]["experiment"]
    held = [_file(str(each.path), each.bytes) for each in files]
    given = manifest.get("inputs", [])  # they are not in the folder: each is named for its place among them
    inputs = [
        _file(PurePosixPath(each["file"]).name, each["bytes"])
        | {"@id": f"#input-{number}", "@type": "CreativeWork", "sha256": each["sha256"]}
        for number, each in enumerate(given)
    ]
    made = ", predicted by its model without a measurement" if manifest.get("predicted") else ""
    root = {
        "@id": "./",
        "@type": "Dataset",
        "conformsTo": _ref(_PROFILE),
        "name": f"Railyard results: {name}",
        "description": f"Results of the Railyard experiment {name}{made}.{f' {partial}.' if partial else ''}",
        "datePublished": published,
        "hasPart": _refs(held),
        "mentions": _ref(_RUN),
        "creativeWorkStatus": partial,
        "license": _ref(licensed) if licensed else None,
    }
    graph = [
        {"@id": CRATE, "@type": "CreativeWork", "conformsTo": _ref(_VERSION), "about": _ref("./")},
        *(root, *held, _run(manifest, held, inputs, partial, under_way), *inputs, *_software(manifest)),
        {"@id": _AUTHORS, "@type": "Organization", "name": AUTHORS},
        *(
            {"@id": each, "@type": "CreativeWork", "name": each.rpartition("/")[2] or each, "identifier": each}
            for each in dict.fromkeys([_LICENSE, licensed or _LICENSE])
        ),
        {"@id": _PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
    ]
    known = [{key: value for key, value in entity.items() if value is not None} for entity in graph]
    return {"@context": [f"{_VERSION}/context", _TERMS], "@graph": known}


def _run(
    manifest: Mapping[str, Any], held: list[Entity], inputs: list[Entity], partial: str | None, under_way: bool
) -> Entity:
    status, ended = "Completed" if partial is None else "Active" if under_way else "Failed", manifest.get("ended")
    return {
        "@id": _RUN,
        "@type": "CreateAction",
        "name": f"railyard run of {manifest['experiment']['experiment']}",
        "instrument": _ref(_SOFTWARE),
        "result": _refs(held),
        "actionStatus": _ref(f"http://schema.org/{status}ActionStatus"),
        "object": _refs(inputs) or None,
        "description": manifest.get("command"),
        "startTime": _moment(manifest["written"]),
        "endTime": _moment(manifest.get("ended_at")),
        "error": None if status != "Failed" else partial if ended in (None, COMPLETE) else ended,
    }


def licence_address(given: str) -> str:
    """The address of a licence, given by its identifier in the list of SPDX (``CC-BY-4.0``) or as an address.

    ``ValueError`` for anything else.
    """
    if re.fullmatch(r"https?://[!-~]+", given):
        return given
    if re.fullmatch(r"[A-Za-z0-9.+-]+", given) and not given.lower().startswith("licenseref-"):
        with suppress(InvalidLicenseExpression):
            return f"{_SPDX}{canonicalize_license_expression(given)}"
    raise ValueError(
        f"{given!r} is no identifier of a licence; give one of SPDX (https://spdx.org/licenses), such as CC-BY-4.0, "
        "or an address"
    )


def _file(path: str, size: int) -> Entity:
    name = PurePosixPath(path)
    return {
        "@id": quote(path),
        "@type": "File",
        "name": name.name,
        "contentSize": str(size),
        "encodingFormat": _TYPES.get(name.suffix, "application/octet-stream"),
        "description": _ABOUT.get(name.name if name.parent.parent == PurePosixPath(POINTS) else path),
    }


def _moment(text: str | None) -> str | None:
    """A moment of the manifest as ISO 8601 has it, with a colon in the offset: ``2026-01-31T12:00:00+01:00``."""
    return text and f"{text[:-2]}:{text[-2:]}"


def _software(manifest: Mapping[str, Any]) -> Iterator[Entity]:
    versions, git = dict(manifest["versions"]), manifest.get("git")
    own = versions.pop("railyard")
    machine = {"machine": versions.pop("machine", None), **manifest.get("machine", {})}
    packages = [
        {"@id": f"#software-{quote(name)}", "@type": "SoftwareApplication", "name": name, "softwareVersion": version}
        for name, version in versions.items()
    ]
    yield {
        "@id": _SOFTWARE,
        "@type": "SoftwareApplication",
        "name": "Railyard",
        "softwareVersion": own,
        "identifier": f"git commit {git['commit']}{' (changed)' if git['changed'] else ''}" if git else None,
        "author": _ref(_AUTHORS),
        "license": _ref(_LICENSE),
        "softwareRequirements": _refs(packages),
        "processorRequirements": "; ".join(
            f"{key.replace('_', ' ')}: {value}" for key, value in machine.items() if value is not None
        ),
    }
    yield from packages


def _ref(name: str) -> Entity:
    return {"@id": name}


def _refs(entities: Iterable[Entity]) -> list[Entity]:
    return [_ref(entity["@id"]) for entity in entities]
