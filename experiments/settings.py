"""Settings that experiments share, and the reading and checking of experiment files (YAML).

Each field of a settings class is a key of the experiment file and an option of the command line
(``experiments.options``); its description is the text of both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from controllers.northbound.rest_address import read_address
from experiments.timetable import TimedAct, check, parse
from railyard import __version__
from railyard.errors import ConfigError, in_file
from railyard.remote.ssh import HERE, Address
from railyard.scale import MOST_TIME_SCALE, Scale
from railyard.size import read_sizes
from railyard.validation import Section, config_error, shown
from railyard.yaml_file import read_mapping
from topos.plan import FabricPlan

MOST_SEED = 2**63 - 1
MOST_POINTS = 1000
"""Points of one run: each takes seconds or more."""
MOST_REPEATS = 100
MOST_MACHINES = 64
LEAST_SCALE = 1e-9
"""Below it sizes and times of the real system would be beyond all that exists."""


@dataclass(frozen=True)
class Option:
    """The option of a field, where it differs from the default: key ``delay_ms`` of a section ``x`` is ``--x-delay``.

    ``name`` is the option (``--study``), ``metavar`` the form of its value.
    ``const`` makes the option a flag that sets this value (``--alone`` sets ``neighbour`` to None).
    """

    name: str = ""
    metavar: str = ""
    const: Any = ...


def parts(annotation: Any) -> tuple[Any, ...]:
    """The members of a union without None, each without its metadata, or the annotation itself."""
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    bare = (get_args(part)[0] if get_origin(part) is Annotated else part for part in members)
    return tuple(part for part in bare if part is not type(None))


def is_list(annotation: Any) -> bool:
    """Whether values are separated by commas: any number of words or numbers."""
    return all(get_origin(part) is tuple and get_args(part)[1:] == (...,) for part in parts(annotation)) and not any(
        get_origin(get_args(part)[0]) is tuple for part in parts(annotation)
    )


class ScaleSection(Section):
    """The scale of a run: two numbers between the real system and the emulated one."""

    rate: Annotated[float | Literal["auto"], Option("--rate", "1/250")] = Field(
        default="auto", description="scale: emulated / real link rate, a number, a fraction or auto"
    )
    time: Annotated[float, Option("--time", "X")] = Field(
        default=1.0, ge=LEAST_SCALE, le=MOST_TIME_SCALE, description="scale: emulated seconds per real second"
    )

    @field_validator("rate", mode="before")
    @classmethod
    def _fraction(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "auto":
            fraction = re.fullmatch(r"\s*([0-9]{1,18})/([0-9]{1,18})\s*", value)
            try:
                return int(fraction[1]) / int(fraction[2]) if fraction else float(value)
            except (ValueError, ZeroDivisionError):
                raise ValueError(f"must be 'auto', a number or a fraction such as 1/250, not {shown(value)}") from None
        return value

    @field_validator("rate")
    @classmethod
    def _range(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not LEAST_SCALE <= value <= 1:
            raise ValueError(f"must be at least {LEAST_SCALE:g} and at most 1, not {value:g}")
        return value

    def scale(self) -> Scale:
        """The scale of an experiment that states its rate; ``ConfigError`` for ``auto``."""
        if self.rate == "auto":
            raise ConfigError("must be a number here: this experiment states its rates and sizes", key="scale.rate")
        return Scale(self.rate, self.time)


class UnscaledSection(ScaleSection):
    """Scale whose default is 1: rates and sizes are those on the emulated wire."""

    rate: Annotated[float | Literal["auto"], Option("--rate", "1/250")] = Field(
        default=1.0, description=ScaleSection.model_fields["rate"].description
    )


class Settings(Section):
    """Settings of an experiment; those that compute without packets have no other keys in common."""

    read_by: ClassVar[Mapping[str, str]] = {}
    """Keys that one of the experiment's studies alone reads, with that study."""

    @field_validator("*")
    @classmethod
    def _each_once(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a list that names one thing twice: it would be measured once, or two rows would look the same."""
        if isinstance(value, tuple) and is_list(cls.model_fields[info.field_name or ""].annotation):
            for place, one in enumerate(value):
                if one in value[:place]:
                    name = f"{one:g}" if isinstance(one, float) else str(one)
                    raise ValueError(f"has {name} twice; give it once")
        return value

    @model_validator(mode="after")
    def _keys_have_their_study(self) -> Settings:
        for key, study in self.read_by.items():
            given = getattr(self, key) != type(self).model_fields[key].default
            if given and study not in getattr(self, "studies", ()):
                raise ConfigError(f"is for study {study} alone; add it to the studies, or leave this out", key=key)
        return self


AgentsPerProcess = Annotated[
    int,
    Field(
        ge=0,
        le=1024,
        description="ranks that share an agent process; 0 lets them use all processors, and those that may die, whose "
        "values are real or that a script drives always have one each",
    ),
]


class PacketSettings(Settings):
    """The keys that all experiments with packets share: seed, controller, datapath, scale."""

    seed: int = Field(default=1, ge=0, le=MOST_SEED, description="seed of payloads and of all that is drawn")
    verify: bool = Field(default=False, description="real values as payloads, and a check of every element received")
    controller: Literal["os-ken", "ryu", "remote"] = Field(
        default="os-ken",
        description="framework of Railyard's controller, or remote for an OpenFlow controller of your own",
    )
    remote: Annotated[str, Option(metavar="HOST:PORT")] = Field(
        default="127.0.0.1:6653", description="address of your own controller"
    )
    app_socket: Annotated[str | None, Option(metavar="PATH")] = Field(
        default=None,
        description="Unix socket at which your own controller is asked for circuits (default "
        "/run/railyard/app-PORT.sock, with the port of remote)",
    )
    rest: Annotated[str | None, Option(metavar="IP:PORT")] = Field(
        default=None, description="address of a REST interface during the run; port 0 stands for any free one"
    )
    rest_token_file: Annotated[str | None, Option(metavar="FILE")] = Field(
        default=None,
        description="file with the token of the REST interface, which only its owner can open, instead of a new token "
        "in rest-token of the results folder",
    )
    datapath: Literal["auto", "bpf", "ovs"] = Field(
        default="auto",
        description="how circuits and routes are forwarded: in the kernel by eBPF, by Open vSwitch alone, or auto, the "
        "first of these that the kernel has",
    )
    transport: Literal["cubic", "reno", "bbr", "dctcp"] | None = Field(
        default=None,
        description="congestion control of TCP on all hosts, instead of cubic (or reno where the kernel has no cubic)",
    )
    port_speed: Literal["emulated", "real"] | None = Field(
        default=None,
        description="speed that ports tell a controller of your own by OpenFlow: that of the emulated link, or the "
        "real one that it stands for; without it what Open vSwitch says",
    )
    ack_timeout_s: Annotated[float, Option("--ack-timeout", "S")] = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="timeout of a controller's reply, in wall-clock seconds, to which the compute of a step is added",
    )
    agents_per_process: AgentsPerProcess = 0
    wait_quiet_s: Annotated[float, Option("--wait-quiet", "SECONDS")] = Field(
        default=0.0,
        ge=0,
        le=86_400,
        description="longest wait before each point until other processes and other guests leave the processors alone, "
        "in seconds; after it the point is measured nevertheless, and 0 waits for nothing",
    )
    pcap: bool = Field(
        default=False,
        description="capture of every packet in captures/*.pcapng of the results folder, with step and chunk",
    )
    scale: ScaleSection = ScaleSection()

    @field_validator("rest")
    @classmethod
    def _rest_address(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                read_address(value)
        except ConfigError as error:
            raise ValueError(error.message) from None
        return value

    @field_validator("remote")
    @classmethod
    def _address(cls, value: str) -> str:
        if not re.fullmatch(r"[^:]+:[0-9]{1,5}", value):
            raise ValueError(f"must be HOST:PORT such as 127.0.0.1:6653, not {shown(value)}")
        return value

    @property
    def app_path(self) -> Path | None:
        """Where a controller of the user's own is asked for circuits; None if it is not asked."""
        return None if self.app_socket is None else Path(self.app_socket).absolute()

    @model_validator(mode="after")
    def _rest_has_a_controller(self) -> PacketSettings:
        if self.controller == "remote" and self.rest is not None:
            raise ConfigError("belongs to Railyard's controller, and controller is remote; leave it out", key="rest")
        if self.port_speed is not None and self.datapath == "ovs":
            raise ConfigError("needs the fast path, which answers for the ports; leave datapath out", key="port_speed")
        if self.controller != "remote" and self.app_socket is not None:
            raise ConfigError("is for a controller of your own; add controller remote", key="app_socket")
        return self


class RepeatedSettings(PacketSettings):
    """The keys of experiments whose points are measured several times (``experiments.repeats``)."""

    repeats: int = Field(
        default=3,
        ge=1,
        le=MOST_REPEATS,
        description="measurements of each point, of which the median counts; the order of points is drawn for each",
    )
    attempts: int = Field(
        default=3,
        ge=1,
        le=MOST_REPEATS,
        description="measurements of a repeat at most, the first included; one that something disturbed is made again",
    )
    give_up: bool = Field(
        default=False,
        description="no point measured again for a disturbance, once one load disturbed every attempt at the first one",
    )
    events: Annotated[str, Option(metavar="TEXT|FILE.yaml")] = Field(
        default="",
        description="what is done to the fabric in every point, at times of the modelled job or at its steps, such as "
        "'2s fail rail0:3; step 4.5 restore rail0:3', or a file that has it as its key events (docs/run.md)",
    )

    @field_validator("events", mode="before")
    @classmethod
    def _events(cls, value: Any) -> str:
        """The acts as text, whether they came as text, as a list or in a file."""
        return "; ".join(map(str, parse(value)))

    def acts(self, plan: FabricPlan, steps: float = inf) -> tuple[TimedAct, ...]:
        """The acts of ``events`` for a job of so many steps; ``ConfigError`` for one that is impossible on ``plan``."""
        acts = parse(self.events)
        check(acts, plan, steps)
        return acts


class SpreadSettings(RepeatedSettings):
    """The keys of experiments whose fabric may spread over several machines (``experiments.spread``)."""

    cluster: Annotated[tuple[str, ...], Option("--cluster", "MACHINE,...")] = Field(
        default=(),
        max_length=MOST_MACHINES,
        description="machines over which one fabric spreads, as ssh finds them; local is this one (docs/cluster.md)",
    )
    placement: Annotated[str, Option("--placement", "NAME|FILE.py:Class")] = Field(
        default="rails", description="which machine makes which switch and host: rails, servers, single, or your own"
    )

    @model_validator(mode="after")
    def _not_on_a_cluster(self) -> SpreadSettings:
        if self.cluster and self.controller == "remote":
            raise ConfigError("remote works on one machine only; leave out cluster", key="controller")
        if self.cluster and self.pcap:
            raise ConfigError("captures on one machine only; leave out cluster", key="pcap")
        if self.cluster and self.events:
            raise ConfigError("acts on one machine only; leave out cluster", key="events")
        for machine in self.cluster:
            if machine not in HERE:
                Address.of(machine, "cluster")
        return self


Sizes = Annotated[tuple[int, ...], BeforeValidator(lambda value: value if value is None else read_sizes(value))]
"""Buffer sizes in bytes, with K, M and G for powers of 1024."""
Delay = Annotated[float, Field(ge=0, le=600_000)]
Delays = Annotated[tuple[Delay, ...], Option("--delays", "MS,...")]
Iterations = Annotated[int, Field(ge=1, le=10_000, description="measured iterations after one warm-up")]
GuardMs = Annotated[
    float,
    Field(
        ge=0,
        le=10_000,
        description="guard time in slots of fixed length, in ms; a command without it takes what this machine needs, "
        "as calibrated",
    ),
]
Mtu = Annotated[int, Option("--mtu", "BYTES"), Field(ge=1280, le=9000, description="MTU of the links, in bytes")]
Overhead = Annotated[int, Option("--overhead", "BYTES"), Field(ge=0, le=64, description="framing of a packet in bytes")]
PortGbps = Annotated[float, Option("--port-gbps", "GBPS"), Field(gt=0, le=10000, description="rate of a port, in Gb/s")]
GateLoss = Annotated[float, Field(ge=0, allow_inf_nan=False, description="loss of a gate, in dB")]
LossBudget = Annotated[
    float | None,
    Field(ge=0, allow_inf_nan=False, description="the most that a path on a mesh may lose, in dB (default any loss)"),
]

_S = TypeVar("_S", bound=Section)


def most_gates(budget_db: float | None, gate_loss_db: float) -> int | None:
    """The gates that light can cross on a loss budget; None for any number.

    ``ConfigError`` for a budget below the loss of one gate.
    """
    if budget_db is None or budget_db >= gate_loss_db * 1e5:  # no mesh has as many gates
        return None
    most = int(budget_db / gate_loss_db + 1e-9)
    if not most:
        raise ConfigError(
            f"of {budget_db:g} dB is below the loss of one gate, {gate_loss_db:g} dB; give more", key="loss_budget_db"
        )
    return most


def recorded_settings(model: type[_S], values: Mapping[str, Any]) -> _S:
    """The settings of a run that are in its manifest, with the name of its experiment; errors as of ``validated``."""
    return validated(model, {key: value for key, value in values.items() if key != "experiment"})


def validated(
    model: type[_S], values: Mapping[str, Any], source: str | None = None, options: Mapping[str, str] | None = None
) -> _S:
    """The ``model`` that ``values`` describe; ``ConfigError`` names the first wrong key and what would work.

    ``options`` gives the option that set a key (dotted), which the error then names.
    """
    try:
        with in_file(source):  # for the checks of several keys
            return model.model_validate(dict(values))
    except ValidationError as error:
        raise config_error(error, model, "an experiment", source=source, names=options or {}) from None
    except UnicodeEncodeError as error:
        raise ConfigError(f"must be UTF-8 text, not {shown(error.object)}", source=source) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in an experiment file, without its key ``version``; ``ConfigError`` names the file and the line.

    A file whose ``version`` is later than this Railyard is refused.
    """
    data = read_mapping(path, "an experiment file", "steps, scale")
    _check_version(data.pop("version", None), str(path))
    return data


def _check_version(version: object, source: str) -> None:
    if version is None:
        return
    numbers = re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){1,9}", version) if isinstance(version, str) else None
    if numbers is None:  # YAML reads 0.10 as the number 0.1
        raise ConfigError(
            f"must be text of numbers such as '{__version__}', not {shown(version)}", key="version", source=source
        )
    wanted, own = (tuple(map(int, text.split("."))) for text in (str(version), __version__))
    if wanted > own:
        raise ConfigError(
            f"the file is for Railyard {version} and this is {__version__}; use that version or a later one",
            key="version",
            source=source,
        )
