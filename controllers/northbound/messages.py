"""Requests of the job channel and of REST, each declared once: pydantic reads and checks them. No I/O.

A request is one line of JSON. ``op`` names its class, and the answer repeats its ``id``. Unless a class says something
else, its requests are answered at once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from controllers.circuits.ocs import UpdateMode
from controllers.engine.jobs import Job
from railyard.errors import ConfigError, shortened
from railyard.protocol import from_json
from railyard.validation import Name, Seconds, Whole, config_error

LONGEST_REWIRING_S = 600.0
RewireDelay = Annotated[float, Field(ge=0, le=LONGEST_REWIRING_S)]
"""Seconds that the ports of a rewiring by hand are dark."""


class Request(BaseModel):
    """The fields that all requests share; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    id: JsonValue = None


# ---- jobs -----------------------------------------------------------------------------------------------------------


class Register(Request):
    """Register a job; answered when its starting circuits are up.

    ``resumes``: it has outlived its controller and keeps its circuits; each of its ranks sends ``resume`` next.
    """

    op: Literal["register"]
    job: Job
    policy: Name
    resumes: bool = False


class Watch(Request):
    """Wait for changes of membership of ``job``; answered when there were more than ``seen``. ``rank`` says who asks.

    The answer: number, state (replaced, stranded), dead, replacements ([old, new], since ``seen``), members (group ->
    ranks), reason.
    """

    op: Literal["watch"]
    job: Name
    seen: Whole = 0
    rank: Whole | None = None


class Restart(Request):
    """Begin a new incarnation of ``job``; earlier connections of its ranks are not served any more.

    The answer: number, state, members.
    """

    op: Literal["restart"]
    job: Name


class Finish(Request):
    """Forget ``job``, whose circuits stay."""

    op: Literal["finish"]
    job: Name


class RecordRequest(Request):
    """Write the events from now on, acts over REST since the last point and events from ``since`` on to ``point``.

    Without ``point``, no point is under way. ``results`` is the results folder of the point, if not the controller's.
    """

    op: Literal["record"]
    point: Whole | None = None
    since: float = 0.0
    results: str | None = None


class Jobs(Request):
    """Ask for every job; the answer: jobs."""

    op: Literal["jobs"]


# ---- agents ---------------------------------------------------------------------------------------------------------


class AgentRequest(Request):
    """A request of the agent of ``rank`` (of ``job``) about ``group``."""

    job: str = ""
    rank: Whole
    group: Name


class MembersRequest(AgentRequest):
    """A request that members in one process make together; ``rank`` is the last of them, and they share the answer.

    ``before``: the others in the order in which they asked, each with the seconds since then; ``since`` is that of
    ``rank``.
    """

    before: tuple[tuple[Whole, Seconds], ...] = ()
    since: Seconds = 0.0

    @field_validator("before")
    @classmethod
    def _differ(cls, value: tuple[tuple[int, float], ...], info: ValidationInfo) -> tuple[tuple[int, float], ...]:
        ranks = [*(rank for rank, _ in value), info.data.get("rank")]
        if len(set(ranks)) < len(ranks):
            raise ValueError("must name each rank once, and not rank itself")
        return value

    def ranks(self, now: float) -> list[tuple[int, float]]:
        """All ranks that ask, each with the time at which it did."""
        return [(rank, now - since) for rank, since in (*self.before, (self.rank, self.since))]


class Resume(Request):
    """Say what ``rank`` has of an earlier controller: by group the last request acknowledged, and all that are held."""

    op: Literal["resume"]
    job: Name
    rank: Whole
    acknowledged: dict[str, Whole]
    held: tuple[tuple[str, Whole], ...] = ()


class CheckIn(MembersRequest):
    """Check ``rank`` in; answered when all members of the group have checked in: domain, asks, paths, rotates."""

    op: Literal["checkin"]


class CircuitRequest(MembersRequest):
    """Request the circuits of the group; answered when they are up: group, index, paths.

    In a rotation there is an answer for each slot, with slot_window (number, began, until or null, guard_s).
    """

    op: Literal["request"]
    index: Whole


class Release(MembersRequest):
    """Release the circuits of request ``index``: the rank has nothing in flight any more."""

    op: Literal["release"]
    index: Whole


class MovedReport(AgentRequest):
    """Report that the rank has sent its data for ``slot`` (and, if ``idle``, has none for another); only refused."""

    op: Literal["moved"]
    index: Whole
    slot: Whole
    idle: bool = False


class Leave(Request):
    """Tell that the agent of ``rank`` has ended, where others use the connection; never answered."""

    op: Literal["leave"]
    job: Name
    rank: Whole


class Alive(Request):
    """A heartbeat of the agent of ``rank``; never answered. ``answers``: how often its loop has answered its sender."""

    op: Literal["alive"]
    job: Name
    rank: Whole
    answers: Whole | None = None


# ---- people and scripts ---------------------------------------------------------------------------------------------


class Failed(Request):
    """Report that the chip ``rank`` has failed, whether or not it is in a job. ``job`` says who reports it."""

    op: Literal["failed"]
    rank: Whole
    job: str = ""
    cause: Name = "reported on the job channel"


class Circuits(Request):
    """Ask for every switch with its circuits; the answer: switches."""

    op: Literal["circuits"]


class SwitchRequest(Request):
    """A request for a change of ``switch``."""

    switch: Name


class Rewire(SwitchRequest):
    """Change the circuits of a switch; answered when it is tuned."""

    op: Literal["rewire"]
    circuits: tuple[tuple[Whole, Whole], ...]
    update: UpdateMode = "update"
    delay_s: RewireDelay | None = None


class Gates(SwitchRequest):
    """Set the state of each gate of a switch that is a mesh; answered when the switch is tuned.

    Its circuits are then those that result from the gates, between the ports that are not ``blocked``.
    """

    op: Literal["gates"]
    gates: tuple[Literal["bar", "cross"], ...]
    blocked: tuple[Whole, ...] = ()
    delay_s: RewireDelay | None = None


class Fault(SwitchRequest):
    """Report that ``port`` has failed or is restored."""

    op: Literal["fault"]
    port: Whole
    state: Literal["failed", "restored"]


AnyRequest = (
    Register
    | Resume
    | CheckIn
    | CircuitRequest
    | Release
    | MovedReport
    | Alive
    | Leave
    | Watch
    | Restart
    | Failed
    | Finish
    | RecordRequest
    | Circuits
    | Jobs
    | Rewire
    | Gates
    | Fault
)
_CLASSES: dict[str, type[Request]] = {
    get_args(cls.model_fields["op"].annotation)[0]: cls for cls in get_args(AnyRequest)
}
_READER: TypeAdapter[AnyRequest] = TypeAdapter(Annotated[AnyRequest, Field(discriminator="op")])


def read_request(line: bytes) -> AnyRequest:
    """The request in a line of JSON; ``ConfigError`` names the first key that is wrong and what would work."""
    try:
        return _READER.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            raise ConfigError(f"a request must be one line of JSON{too_deep(error)}") from None
        if first["loc"]:
            tag = str(first["loc"][0])
            raise config_error(error, _CLASSES[tag], f"operation {tag}", tags=1) from None
        _, op = header_of(line)
        raise ConfigError(f"must be one of {', '.join(_CLASSES)}, not {shortened(repr(op))}", key="op") from None


def too_deep(error: ValueError) -> str:
    """End of the sentence about text that could not be read as JSON: whether it is nested too deeply."""
    return ", nested at most 200 deep" if "recursion limit" in str(error) else ""


def header_of(line: bytes) -> tuple[Any, Any]:
    """(id, op) of a line that need not be a request; None for what it does not have."""
    try:
        message = from_json(line)
    except ValueError:
        return None, None
    return (message.get("id"), message.get("op")) if isinstance(message, dict) else (None, None)
