"""RO-Crate metadata of a results folder: its files, the run that made them, and the software of that run. Pure.

Source: RO-Crate Metadata Specification 1.1 (https://w3id.org/ro/crate/1.1) and its profile Process Run Crate 0.5
(https://w3id.org/ro/wfrun/process/0.5), which describes a run as a ``CreateAction``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from measure.results.partial import COMPLETE
from railyard import AUTHORS, LICENSE

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
    "events.jsonl": "the timeline of the run, one event per line",
    "predicted.jsonl": "the timeline that the model predicted for each point, before it was measured",
    "summary.json": "one row per measured point, in units of the real system",
    "summary.csv": "the numbers and texts of the rows",
    "trace.json": "the timeline in Chrome's trace format",
    "report.html": "tables, figures, verdict and time lines in one page that needs no network",
}
Entity = dict[str, Any]


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
    complete, ``licensed`` the address of the licence of the results, if they have one. A key that a manifest of an
    earlier version lacks is left out.
    """
    held = [_file(each) for each in files]
    inputs = [_input(number, each) for number, each in enumerate(manifest.get("inputs") or [])]
    software = list(_software(manifest))
    name = _experiment(manifest)
    root: Entity = {
        "@id": "./",
        "@type": "Dataset",
        "conformsTo": _ref(_PROFILE),
        "name": f"Railyard results: {name}",
        "description": _described(name, manifest, partial),
        "datePublished": published,
        "hasPart": [_ref(each["@id"]) for each in held],
        "mentions": _ref(_RUN),
    }
    if partial is not None:
        root["creativeWorkStatus"] = partial
    if licensed is not None:
        root["license"] = _ref(licensed)
    descriptor = {"@id": CRATE, "@type": "CreativeWork", "conformsTo": _ref(_VERSION), "about": _ref("./")}
    action = _action(manifest, held, inputs, partial, under_way)
    graph = [descriptor, root, *held, action, *inputs, *software, *_context(licensed)]
    return {"@context": [f"{_VERSION}/context", _TERMS], "@graph": graph}


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


def _described(name: str, manifest: Mapping[str, Any], partial: str | None) -> str:
    said = f"Results of the Railyard experiment {name}"
    said += ", predicted by its model without a measurement." if manifest.get("predicted") else "."
    return said if partial is None else f"{said} {partial}."


def _experiment(manifest: Mapping[str, Any]) -> str:
    settings = manifest.get("experiment")
    return str(settings.get("experiment", "unknown")) if isinstance(settings, Mapping) else "unknown"


def _file(held: HeldFile) -> Entity:
    entity: Entity = {
        "@id": quote(str(held.path)),
        "@type": "File",
        "name": held.path.name,
        "contentSize": str(held.bytes),
        "encodingFormat": _TYPES.get(held.path.suffix, "application/octet-stream"),
    }
    about = _ABOUT.get(str(held.path))
    return entity if about is None else {**entity, "description": about}


def _input(number: int, given: Mapping[str, Any]) -> Entity:
    """A file that the run read, which is not in the folder: it is named for its place among the inputs."""
    name = PurePosixPath(str(given["file"])).name
    return {
        "@id": f"#input-{number}",
        "@type": "CreativeWork",
        "name": name,
        "contentSize": str(given["bytes"]),
        "encodingFormat": _TYPES.get(PurePosixPath(name).suffix, "application/octet-stream"),
        "sha256": given["sha256"],
    }


def _action(
    manifest: Mapping[str, Any], files: list[Entity], inputs: list[Entity], partial: str | None, under_way: bool
) -> Entity:
    status = "Completed" if partial is None else "Active" if under_way else "Failed"
    action: Entity = {
        "@id": _RUN,
        "@type": "CreateAction",
        "name": f"railyard run of {_experiment(manifest)}",
        "instrument": _ref(_SOFTWARE),
        "result": [_ref(each["@id"]) for each in files],
        "actionStatus": _ref(f"http://schema.org/{status}ActionStatus"),
    }
    if inputs:
        action["object"] = [_ref(each["@id"]) for each in inputs]
    known = {"description": manifest.get("command"), "startTime": _moment(manifest.get("written")),
             "endTime": _moment(manifest.get("ended_at"))}  # fmt: skip
    action |= {key: value for key, value in known.items() if value}
    if status == "Failed":
        ended = manifest.get("ended")
        action["error"] = partial if ended in (None, COMPLETE) else str(ended)
    return action


def _moment(text: Any) -> str | None:
    """A moment of the manifest as ISO 8601 has it, with a colon in the offset: ``2026-01-31T12:00:00+01:00``."""
    if not isinstance(text, str) or len(text) < 5 or text[-5] not in "+-":
        return text if isinstance(text, str) else None
    return f"{text[:-2]}:{text[-2:]}"


def _software(manifest: Mapping[str, Any]) -> Iterable[Entity]:
    versions = dict(manifest.get("versions") or {})
    own = versions.pop("railyard", None)
    machine = {"machine": versions.pop("machine", None), **(manifest.get("machine") or {})}
    git = manifest.get("git") or {}
    railyard: Entity = {
        "@id": _SOFTWARE,
        "@type": "SoftwareApplication",
        "name": "Railyard",
        "author": _ref(_AUTHORS),
        "license": _ref(_LICENSE),
        "softwareRequirements": [_ref(f"#software-{quote(name)}") for name in versions],
    }
    railyard |= {} if own is None else {"softwareVersion": own}
    if git.get("commit"):
        railyard["identifier"] = f"git commit {git['commit']}{' (changed)' if git.get('changed') else ''}"
    said = "; ".join(f"{key.replace('_', ' ')}: {value}" for key, value in machine.items() if value is not None)
    yield {**railyard, "processorRequirements": said} if said else railyard
    for name, version in versions.items():
        yield {
            "@id": f"#software-{quote(name)}",
            "@type": "SoftwareApplication",
            "name": name,
            "softwareVersion": str(version),
        }


def _context(licensed: str | None) -> list[Entity]:
    """Authors of the software, licences of software and results, and the profile."""
    return [
        {"@id": _AUTHORS, "@type": "Organization", "name": AUTHORS},
        *(
            {"@id": each, "@type": "CreativeWork", "name": each.rpartition("/")[2] or each, "identifier": each}
            for each in dict.fromkeys([_LICENSE, licensed or _LICENSE])
        ),
        {"@id": _PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
    ]


def _ref(name: str) -> Entity:
    return {"@id": name}
