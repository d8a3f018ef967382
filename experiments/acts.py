"""Acts on a run over REST, by a person or a script: how its manifest counts them, and the sentence about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from measure.sentences import says
from railyard.timeline import Event

ACTS = "acts"
"""Manifest key: for each measurement that somebody acted on its ``point``, ``title``, number of ``acts``, and what the
``first`` was."""
ACTED_ON = "ACTED ON"
_MOST_NAMED = 3


def is_act(event: Event) -> bool:
    return (event.source, event.kind) == ("controller", "manual")


def acts_in(acts: Sequence[Event], point: int, title: str) -> dict[str, Any]:
    """The entry of the manifest for a measurement with these acts."""
    return {"point": point, "title": title, "acts": len(acts), "first": says(acts[0])}


def acted_on(manifest: Mapping[str, Any]) -> str | None:
    """The sentence about a run that somebody acted on over REST; None for any other."""
    entries: Sequence[Mapping[str, Any]] = manifest.get(ACTS, ())
    if not entries:
        return None
    count, one = sum(entry["acts"] for entry in entries), len(entries) == 1
    titles = list(dict.fromkeys(entry["title"] for entry in entries))
    more = f" and {len(titles) - _MOST_NAMED} more" if len(titles) > _MOST_NAMED else ""
    first = "the first: " if count > 1 else ""
    measurements = f"{len(entries)} measurement{'' if one else 's'}"
    return (
        f"{ACTED_ON}: {count} act{'' if count == 1 else 's'} over REST in {measurements} "
        f"({'; '.join(titles[:_MOST_NAMED])}{more}), {first}{entries[0]['first']}. {'It' if one else 'They'}, and "
        "later ones on the same fabric, may measure something else than the settings say."
    )
