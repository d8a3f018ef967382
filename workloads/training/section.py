"""A section of a workload file, whose keys are fields that pydantic checks."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section whose values do not change and in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
