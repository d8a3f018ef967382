"""The claims of this project and the runs that measure them: ``claims.yaml`` of the documents, checked once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator

from experiments.claims.claim import OURS, Claim, MeasuredRun
from measure.published import all_published
from railyard.checkout import ROOT
from railyard.errors import ConfigError, nearest
from railyard.validation import Section, config_error
from railyard.yaml_file import read_mapping

DOCS = ROOT / "docs"
FILE = "claims.yaml"


class Catalog(Section):
    """Runs in the order in which they are measured, and claims in that of the pages, by name."""

    runs: Mapping[str, MeasuredRun]
    claims: Mapping[str, Claim]

    @field_validator("*", mode="before")
    @classmethod
    def _named(cls, entries: Any) -> Any:
        """Give every entry the key under which it stands as its name."""
        if not isinstance(entries, dict):
            return entries
        return {key: {**entry, "name": key} if isinstance(entry, dict) else entry for key, entry in entries.items()}


def read_catalog(docs: Path = DOCS) -> Catalog:
    """The catalog of a folder of documents; ``ConfigError`` names the claim and its first wrong key."""
    file = docs / FILE
    data = read_mapping(file, "the folder docs of a checkout of Railyard", "runs, claims")
    try:
        catalog = Catalog.model_validate(data)
    except ValidationError as error:
        raise config_error(error, Catalog, "the catalog of claims", source=str(file)) from None
    sources = {number.key: number.values for number in all_published()}
    for name, claim in catalog.claims.items():
        needed: dict[str, tuple[Any, Collection[Any]]] = {
            "run": (claim.run, catalog.runs),
            "source": (claim.source, [*OURS, *sources]),
            "at": (claim.at, [None, *sources.get(claim.source, ())]),
        }
        for key, (value, known) in needed.items():
            if value not in known:
                near = nearest(str(value), map(str, known))
                raise ConfigError(f"there is no {value!r}{near}", key=f"claims.{name}.{key}", source=str(file))
        if claim.expected is None and claim.source in OURS:
            raise ConfigError("is missing; a claim of ours needs it", key=f"claims.{name}.expected", source=str(file))
    return catalog
