"""What every experiment is: settings, a check and a prediction without root, a run, typed rows and a report."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from experiments.settings import RepeatedSettings, Settings
from railyard.errors import ConfigError
from railyard.plugin import FILE_MODULE
from railyard.scale import Scale

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.report import Report
    from experiments.runner import Runner
    from measure.results.row import ResultRow, Row

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Action:
    """An option that does something else than a run, such as ``--list``: ``do`` gets the experiment and a console.

    ``do`` returns the exit status; ``root`` says whether it needs root. ``uses`` are keys of those options of a run's
    interfaces and output that it uses.
    """

    text: str
    do: Callable[[Any, Console], int]
    root: bool = False
    uses: tuple[str, ...] = ()


class Experiment(ABC, Generic[S]):
    """An experiment with its settings. A subclass is one kind of experiment; ``experiments.registry`` finds it by name.

    ``Settings`` declares the keys of the experiment file and, with them, the options of the command line. ``quick``
    are the values of ``--quick``, ``rows`` the types of the rows of a results folder, ``examples`` command lines for
    ``--help`` (after ``railyard run NAME``), ``actions`` options that do something else than a run.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[Settings]]
    rows: ClassVar[Sequence[type[ResultRow]]] = ()
    quick: ClassVar[Mapping[str, Any]] = {}
    examples: ClassVar[Sequence[str]] = ()
    actions: ClassVar[Mapping[str, Action]] = {}
    files: ClassVar[Sequence[str]] = ()
    """Keys whose value may be a file, which an experiment file may have beside itself."""
    packets: ClassVar[bool] = True
    """Whether the rows are measured points on a fabric, which carry a verdict."""
    keeps: ClassVar[bool] = True
    """Whether a run leaves a results folder also without ``--out``."""
    root: ClassVar[bool] = True
    """Whether a run needs root, unless ``needs_root`` says so by the settings."""

    omitted: Sequence[str] = ()
    """Sentences about what the settings name and a run or a prediction leaves out, as it is impossible."""

    spared_share: float = 0.0
    """Share of the processors' time that a scale chosen here leaves to the programs that run beside it."""

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the settings, where an option that was ``given`` changes the meaning of others."""
        return values

    @classmethod
    def quick_values(cls) -> dict[str, Any]:
        """The values of ``--quick``: nothing is measured twice, unless it was disturbed or the experiment says so."""
        once = {"repeats": 1, "give_up": True} if issubclass(cls.Settings, RepeatedSettings) else {}
        return {**once, **cls.quick}

    @property
    def scale(self) -> Scale:
        """The scale of a run; 1 for an experiment without packets."""
        section = getattr(self.settings, "scale", None)
        return Scale(1.0, 1.0) if section is None else section.scale()

    @property
    def identifier(self) -> str:
        """Name by which ``experiments.registry.find`` finds this kind of experiment, for its results folder."""
        kind = type(self)
        if kind.__module__.startswith(("experiments.", "commands.")):
            return kind.name
        module = sys.modules[kind.__module__]
        of_file = module.__name__.startswith(FILE_MODULE)
        return f"{module.__file__ if of_file else module.__name__}:{kind.__name__}"

    def needs_root(self) -> bool:
        """Whether a run with these settings needs root."""
        return self.root

    def check(self) -> None:
        """Raise ``ConfigError`` for all that can be refused without root and before anything starts."""

    def check_run(self) -> None:
        """Raise ``ConfigError`` as ``check``, for what a run must have and a prediction can do without."""

    def predict(self) -> Iterable[ResultRow]:
        """The rows as the model predicts them; measured columns are None. Needs no root."""
        raise ConfigError(f"has no model that predicts it; use: railyard run {self.name}", key=self.name)

    def points(self) -> int | None:
        """Number of rows that a complete run gives; None if it is known only after the run."""
        return None

    def planned(self) -> int | None:
        """Number of measurements (or computations) of rows in a complete run, each repeat counted."""
        return self.points()

    @abstractmethod
    def run(self, runner: Runner) -> None:
        """Measure (or compute) every row and give it to ``runner``; an error ends the run, rows so far are saved."""

    def status(self, rows: Sequence[Row]) -> int:
        """The exit status of a run that ended without an error; with packets 8 unless every point is faithful."""
        from experiments.report import exit_status

        return exit_status(rows) if self.packets else 0

    def as_json(self, rows: Sequence[Row]) -> Any:
        """Plain data that ``--json`` writes: the rows, unless an experiment has another form."""
        return list(rows)

    @classmethod
    def report(cls) -> Report:
        """The tables, findings and figures, made from the rows of a results folder.

        If not overridden, ``REPORT`` of the module ``report`` beside that of the experiment.
        """
        found: Report = import_module(".report", cls.__module__.rpartition(".")[0]).REPORT
        return found
