"""``railyard run`` and ``railyard predict``: one experiment, from its name or its file and options to its report."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.page import serving
from experiments.experiment import Experiment
from experiments.options import field_options, in_words, merged, settings_values
from experiments.parser import Parser, folder
from experiments.registry import ENTRIES, entries, find
from experiments.settings import PacketSettings, RepeatedSettings, Settings, SpreadSettings, read_yaml, validated
from railyard.checkout import NEEDS_ROOT, railyard_as_root
from railyard.errors import PARTIAL_EXIT_STATUS, ConfigError, MachineError, RailyardError
from railyard.ownership import naming, open_text
from workloads.catalog import CATALOG

if TYPE_CHECKING:
    from experiments.report import Recorded
    from experiments.runner import Runner
    from experiments.session import Session
    from measure.results.row import ResultRow, Row

DEFAULT = "rails"
"""The experiment of a file without the key ``experiment``."""
USAGE = """usage: railyard run|predict NAME|FILE.yaml [options]

NAME is an experiment of `railyard list`, or FILE.py:Class. A file says with its
key `experiment` which one it is of. `railyard run NAME --help` lists the
options of an experiment. On a lab that is up: run WORKLOAD, or --lab NAME.

  railyard predict rails --workload smoke             # the model alone, no root
  sudo railyard run rails --workload smoke --quick    # on packets, in a minute
  sudo railyard run my_experiment.yaml --out my_results"""
_HELP_COLUMNS = 78
_SUFFIXES = (".yaml", ".yml")
_RUN_ONLY = ("rest", "rest_token_file", "pcap", "wait_quiet_s", "cluster", "watch", "control")
"""Keys of options that are for a run alone."""
_SHARED = (SpreadSettings, RepeatedSettings, PacketSettings, Settings)
"""Settings whose options have a section of ``--help`` of their own."""
_OTHER_FILES = (
    ({"model", "parallelism"}, "is a workload; use rails --workload {}"),
    ({"sweep", "base", "grid", "together"}, "is a sweep; use railyard sweep {}"),
)
"""Keys by which other files that people write are recognized in the place of an experiment file, and what to say."""
_NOT_PREDICTED = {
    *_RUN_ONLY,
    *("verify", "remote", "app_socket", "transport", "ack_timeout_s", "repeats", "attempts", "give_up"),
}
"""Keys of options that a prediction does not have: with them its numbers would be the same."""
_NOT_ACTED = {*_RUN_ONLY, "repeats", "attempts", "give_up", "placement", "out", "no_figures", "json"}
"""Keys of options that an action has only if it ``uses`` them."""
_FOR_CIRCUITS = ("delays_ms", "link_recovery_ms")
"""Options that nothing uses where a controller of one's own is not asked for circuits."""
_FOR_OUR_CONTROLLER = ("slot_ms", "guard_ms", "rest_token_file")
"""Options that nothing uses where a controller of one's own sets the circuits."""


def main(arguments: Sequence[str], *, predict: bool = False, standing: Session | None = None) -> int:
    """Run the experiment that ``arguments`` name, on ``standing`` if that is given; returns the exit status."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    kind, rest = kind_of(arguments)
    mode = mode_of(kind, rest, predict=predict)
    options = parser_of(kind, mode).read(rest, lambda name: _whose(name, kind, mode))
    options.arguments = arguments
    try:
        return _execute(kind, options, standing)
    except ConfigError as error:
        typed = as_typed(error, kind, options)
        if typed is None:
            raise
        raise typed from error


def _execute(kind: type[Experiment[Any]], options: argparse.Namespace, standing: Session | None) -> int:
    """Do what the options ask for; returns the exit status."""
    experiment = experiment_of(kind, options)
    if getattr(experiment.settings, "controller", None) == "remote":
        asked = experiment.settings.app_path is not None
        unused = _FOR_OUR_CONTROLLER if asked else (*_FOR_CIRCUITS, *_FOR_OUR_CONTROLLER)
        refuse_unused(options, unused, "with --controller remote")
    else:
        refuse_unused(options, ("remote", "app_socket"), "without --controller remote")
    action = kind.actions.get(options.verb)
    if action is not None:
        if action.root:
            need_root()
        from experiments.report import console_for_tables

        return action.do(experiment, console_for_tables(wide=options.wide))
    check_json(options.json)
    if options.verb == "predict" and options.out is None:
        refuse_unused(options, ("no_figures",), "in a prediction without --out, which draws nothing")
    serving.check_options(experiment, options)
    experiment.check()
    if options.verb == "predict":
        return _predict(experiment, options)
    experiment.check_run()
    if options.out is not None:
        from measure.results.folder import check_folder

        check_folder(options.out)  # before others' load is looked at
    if os.geteuid() == 0 and standing is None:
        _spare(experiment)
    _ = experiment.scale  # a scale that this machine cannot carry is refused before root is asked for
    if experiment.needs_root():
        need_root()
    return _measure(experiment, options, standing)


def _spare(experiment: Experiment[Any]) -> None:
    """Let a scale that is chosen here leave to other programs the processors that they keep busy, and say so."""
    settings = experiment.settings
    chosen = isinstance(settings, PacketSettings) and settings.scale.rate == "auto"
    if not chosen or settings.wait_quiet_s or getattr(settings, "cluster", ()):
        return
    from measure.live.interference import steady_load

    experiment.spared_share, says = steady_load()
    try:
        _ = experiment.scale
    except ConfigError:  # its transfers are too short for a rate that is so much lower
        experiment.spared_share = 0.0
    if experiment.spared_share:
        print(says, file=sys.stderr)


def refuse_unused(options: argparse.Namespace, names: Sequence[str], where: str) -> None:
    """Raise ``ConfigError`` for the first of the options ``names`` that was given: it is not used ``where``."""
    for name in names:
        if getattr(options, name, None):
            option = f"--{name.removesuffix('_s').removesuffix('_ms').replace('_', '-')}"
            raise ConfigError(f"is not used {where}; leave it out", key=option)


def predict(arguments: Sequence[str]) -> int:
    return main(arguments, predict=True)


# ---- from the command line to the experiment -----------------------------------------------------------------------


def kind_of(arguments: Sequence[str]) -> tuple[type[Experiment[Any]], list[str]]:
    """The experiment of a command line, and the arguments for its own parser.

    The first argument may be its name or an experiment file, which then says which experiment it is of.
    """
    if not arguments or arguments[0].startswith("-"):
        names = ", ".join(entry.name for entry in ENTRIES)
        raise ConfigError(f"name an experiment ({names}) or an experiment file")
    first = arguments[0]
    if first.endswith(_SUFFIXES):
        return find(_named_in(Path(first))), list(arguments)
    if first not in (entry.name for entry in entries()) and (first in CATALOG or os.path.isfile(first)):
        raise ConfigError(
            f"{first} is no experiment; a workload or a trace is given by rails --workload {first}, or runs on a lab "
            "that is up"
        )
    return find(first), list(arguments[1:])


def _named_in(path: Path) -> str:
    return str(read_yaml(path).get("experiment") or DEFAULT)


def mode_of(kind: type[Experiment[Any]], words: Sequence[str], *, predict: bool = False) -> str:
    """The mode that the ``words`` of a command line ask for: ``run``, ``predict``, or an action of the experiment."""
    if predict or "--predict" in words:
        return "predict"
    return next((name for name in kind.actions if f"--{name}" in words), "run")


def parser_of(kind: type[Experiment[Any]], mode: str = "run") -> Parser:
    """The parser of the options of an experiment for a ``mode`` (``mode_of``): those that mean something in it."""
    action = kind.actions.get(mode)
    left_out = _NOT_ACTED - {*action.uses} if action else _NOT_PREDICTED if mode == "predict" else set()
    command = f"railyard predict {kind.name}" if mode == "predict" else f"railyard run {kind.name}"
    if action:
        command, description = f"{command} --{mode}", f"{action.text}."
    else:
        description = textwrap.fill(" ".join((kind.__doc__ or "").split()), _HELP_COLUMNS)
        shown = "\n".join(_example(kind.name, *line.split("#")) for line in kind.examples if mode == "run")
        description += f"\n\n{shown}" if shown else ""
    parser = Parser(prog=command, usage=f"{command} [FILE.yaml] [options]", description=description)
    about = "experiment file; options override its keys"
    parser.add_argument("yaml file", nargs="?", type=Path, metavar="FILE.yaml", help=about)
    used = [option for option in field_options(kind.Settings) if option.path[0] not in left_out]
    repeated = issubclass(kind.Settings, RepeatedSettings) and not left_out
    keys = next(each for each in kind.Settings.__mro__ if each in _SHARED).model_fields
    own = [option for option in used if option.path[0] not in keys]
    title = "repeats, fabric and scale" if repeated else "fabric and scale"
    groups = {"options of the experiment": own, title: [option for option in used if option not in own]}
    for title, options in groups.items():
        group = parser.add_argument_group(title)
        for option in options:
            option.add_to(group)
    add = parser.add_argument_group("run and output").add_argument
    for name, other in kind.actions.items():
        if mode in ("run", name):
            add(f"--{name}", dest="mode", action="store_const", const=name, help=other.text)
    quick = ", ".join(f"{key} {in_words(value)}" for key, value in kind.quick_values().items())
    add("--quick", action="store_true", help=f"a shorter run: {quick}" if quick else argparse.SUPPRESS)
    add("--keys", metavar="JSON", help="keys of an experiment file as JSON, which override the file")
    if not action:
        modelled = mode == "run" and kind.predict is not Experiment.predict
        about = "the model's numbers only; needs no root" if modelled else argparse.SUPPRESS
        add("--predict", dest="mode", action="store_const", const="predict", help=about)
    if "out" not in left_out and "--out" not in parser.options:
        default = f" (default results/{kind.name}-DATE-TIME, and none for predictions)" if kind.keeps else ""
        add("--out", type=folder, metavar="FOLDER", help=f"results folder{default}")
    if "json" not in left_out:
        add("--json", nargs="?", const="-", metavar="FILE", help="rows as JSON into FILE, or instead of the table")
    if "no_figures" not in left_out:
        add(
            "--no-figures", action="store_true", help="no figures, trace.json and report.html; railyard plot makes them"
        )
    add("--wide", action="store_true", help="all columns of the tables")
    if "watch" not in left_out:
        serving.add_options(add)
    parser.set_defaults(verb=mode, out=None, json=None, no_figures=False, watch=None, control=False)
    return parser


def _whose(name: str, kind: type[Experiment[Any]], mode: str) -> str:
    """Where there is an option that an experiment has not in this ``mode``, for the error about it."""
    if mode != "run" and name in parser_of(kind).options:
        return f" but of railyard run {kind.name}; leave it out"
    have = [entry.name for entry in ENTRIES if name in parser_of(find(entry.name)).options]
    return f"; {', '.join(have)} {'have' if len(have) > 1 else 'has'} it" if have else ""


def _example(name: str, arguments: str, about: str = "") -> str:
    """Lines of ``--help`` for an example: ``about`` stands above the command line, which goes on after a backslash."""
    whole = re.sub(r"(--\S+) +(?!-)", "\\1\0", f"railyard run {name} {arguments}".strip())  # an option with its value
    line = "  " + " \\\n      ".join(textwrap.wrap(whole, _HELP_COLUMNS - 6, break_on_hyphens=False)).replace("\0", " ")
    return f"  # {about.strip()}\n{line}" if about else line


def experiment_of(kind: type[Experiment[Any]], options: argparse.Namespace) -> Experiment[Any]:
    """The experiment of the options; they override ``--keys``, which override the file.

    All of them override ``--quick`` and the defaults.
    """
    values: dict[str, Any] = kind.quick_values() if options.quick else {}
    path = getattr(options, "yaml file")
    if path is not None:
        values = merged(values, file_values(kind, path))
    if options.keys is not None:
        values = merged(values, _json_values(options.keys))
    given, named = settings_values(options, kind.Settings)
    values = merged(values, given)
    values = merged(serving.implied_settings(kind, options, values), values)
    return kind(validated(kind.Settings, kind.adapt(values, given), options=named))


def as_typed(error: ConfigError, kind: type[Experiment[Any]], options: argparse.Namespace) -> ConfigError | None:
    """``error`` with the option that a person typed, if it names the key that the option set, or its section."""
    file = getattr(options, "yaml file")
    if error.key is None or (file is not None and str(error.source).startswith(str(file))):
        return None
    named = {**settings_values(options, kind.Settings)[1], "out": "--out"}
    parts = error.key.split(".")

    def meant(key: str) -> bool:
        found = key.split(".")
        return found[-len(parts) :] == parts or found[: len(parts)] == parts

    typed = {name for key, name in named.items() if meant(key)}
    return ConfigError(error.message, key=typed.pop(), source=error.source) if len(typed) == 1 else None


def file_values(kind: type[Experiment[Any]], path: Path) -> dict[str, Any]:
    """Keys and values of an experiment file, checked before options are added: an error then names the file.

    A file that it names (``Experiment.files``) may be in the same folder.
    """
    if path.suffix not in _SUFFIXES:
        raise ConfigError("is no experiment file; a workload or a trace is given by --workload", source=str(path))
    values = read_yaml(path)
    named = values.pop("experiment", None)
    if named is not None and find(str(named)) is not kind:
        raise ConfigError(f"is {named}, not {kind.name}; run: railyard run {path}", key="experiment", source=str(path))
    unknown = values.keys() - kind.Settings.model_fields.keys()
    for keys, says in _OTHER_FILES:
        if unknown & keys:
            raise ConfigError(says.format(path), source=str(path))
    for key in (*kind.files, "events"):
        value = values.get(key)
        if isinstance(value, str) and "/" not in value and os.path.isfile(path.parent / value):
            values[key] = str(path.parent / value)
    validated(kind.Settings, values, str(path))
    return values


def _json_values(text: str) -> dict[str, Any]:
    """The keys and values of ``--keys``, which are checked with those of the file, as a rule may be about both."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ConfigError("""must be JSON such as '{"steps": 3}'""", key="--keys")
    return values


def need_root() -> None:
    """Raise ``MachineError`` with the command to type unless this is root."""
    if os.geteuid() != 0:
        by_module = Path(sys.argv[0]).name == "__main__.py"  # python -m railyard
        typed = railyard_as_root(shlex.join(sys.argv[1:])) if by_module else f"sudo {shlex.join(sys.argv)}"
        raise MachineError(f"{NEEDS_ROOT}; run: {typed}")


def write_json(place: str, text: str) -> None:
    """Write JSON to a file that belongs to the user who called sudo, or to standard output (``-``)."""
    if place == "-":
        print(text)
        return
    try:
        with naming(place), open_text(place, "w", links=True) as out:
            out.write(text + "\n")
    except OSError as error:
        raise ConfigError(f"{place} cannot be written ({error.strerror}); name another file", key="--json") from None


def check_json(place: str | None) -> None:
    """Raise ``ConfigError`` for an experiment file, and where no file can be written, before anything starts."""
    if place is None or place == "-":
        return
    if not place or Path(place).is_dir():
        raise ConfigError("must name a file; without one the rows are written to standard output", key="--json")
    if place.endswith((".yaml", ".yml")):
        raise ConfigError(f"{place} is an experiment file; name another file for the rows", key="--json")
    if not Path(place).parent.is_dir():
        raise ConfigError(f"{Path(place).parent} is not a folder; make it first", key="--json")


# ---- run and report ------------------------------------------------------------------------------------------------


def _predict(experiment: Experiment[Any], options: argparse.Namespace) -> int:
    """Print the rows of the model; with ``--out`` they are also kept in a results folder, with its figures."""
    from measure.results.plain import plain

    out = options.out
    found = list(_predicted(experiment)) if out is None else _kept_prediction(experiment, out.resolve(), options)
    rows = plain([{**row.to_json(), "experiment": experiment.name} for row in found])
    omitted = _omitted(experiment)
    _show(experiment, rows, experiment.settings.model_dump(mode="json"), options, omitted)
    if options.json == "-":
        for note in omitted:
            print(f"railyard: {note}", file=sys.stderr)
    _say_where(out, options)
    return 0


def _omitted(experiment: Experiment[Any]) -> list[str]:
    """Sentences about what a prediction leaves out."""
    timed = "Not predicted: what the timetable (events) does, which the model does not know."
    return [*experiment.omitted, *([timed] if getattr(experiment.settings, "events", "") else [])]


def _predicted(experiment: Experiment[Any]) -> Iterator[ResultRow]:
    """The rows of the model; meanwhile a terminal shows how many there are and for how long it has been computing."""
    from rich.console import Console

    from experiments.progress import RunProgress

    with RunProgress(Console(stderr=True)) as progress:
        progress.begin("computing rows")
        for number, row in enumerate(experiment.predict(), 1):
            progress.step(number)
            yield row


def _kept_prediction(experiment: Experiment[Any], out: Path, options: argparse.Namespace) -> list[ResultRow]:
    from experiments.record import Record
    from measure.results.row import MeasuredRow
    from railyard.scale import Scale

    record = Record(out, experiment, Scale(1.0), _origin(experiment, options))
    record.open()
    try:
        rows = list(_predicted(experiment))
        scale = next(
            (Scale(row.rate_scale, row.time_scale) for row in rows if isinstance(row, MeasuredRow)), Scale(1.0)
        )
        record.describe(predicted=True, planned=len(rows), scale=asdict(scale), omitted=_omitted(experiment))
        record.add(rows)
    except BaseException as error:
        record.close(error)
        raise
    record.close(None)
    if not options.no_figures:
        _draw(experiment, out)
    return rows


def _origin(experiment: Experiment[Any], options: argparse.Namespace) -> Mapping[str, Any]:
    """The command line of the results, and the files that they were made from."""
    from commands.origin import origin

    path = getattr(options, "yaml file")
    files = [experiment.identifier, *([] if path is None else [str(path)])]
    verb = "predict" if options.verb == "predict" else "run"
    return origin(verb, options.arguments, experiment.settings.model_dump(), files)


def _measure(experiment: Experiment[Any], options: argparse.Namespace, standing: Session | None) -> int:
    from rich.console import Console

    from experiments.progress import RunProgress
    from experiments.runner import Runner
    from measure.results.folder import new_folder
    from railyard.ownership import temporary_folder

    with ExitStack() as stack:
        page = stack.enter_context(serving.Companion(options.watch, options.control))
        out = options.out
        if out is None and experiment.keeps:
            out = new_folder(Path("results"), experiment.name)
            stack.callback(_remove_empty, out)
        folder = out or stack.enter_context(temporary_folder()) / "results"
        runner = Runner(experiment, folder, RunProgress(Console(stderr=True)), _origin(experiment, options), standing)
        try:
            with runner:
                page.begin(runner.record.results.folder, experiment.settings, runner.progress.say)
                experiment.run(runner)
        except BaseException as error:
            try:
                _report(experiment, runner, out, options)
            except Exception as another:  # the error of the run is the one to raise
                if not (isinstance(error, OSError) and isinstance(another, OSError)):  # else it has the same cause
                    with suppress(OSError):  # the terminal may be gone
                        print(f"railyard: there is no report: {another}", file=sys.stderr)
            if isinstance(error, BrokenPipeError):  # which on standard output would mean a reader that has ended
                raise MachineError("a process of the run closed its end of a pipe; run it again") from error
            raise
        missing = _report(experiment, runner, out, options)
        return PARTIAL_EXIT_STATUS if missing else experiment.status(runner.rows)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it has results
        folder.rmdir()


def _report(experiment: Experiment[Any], runner: Runner, out: Path | None, options: argparse.Namespace) -> bool:
    """Draw the figures and print the tables of the rows so far, if there are any; returns whether rows are missing.

    Without rows, only the results folder is named, if there is one.
    """
    from experiments.acts import acted_on
    from experiments.redraw import read_folder

    if not runner.rows:
        if out is not None and options.json != "-" and runner.record.exists:
            shown = shlex.quote(str(out))
            print(f"No row was measured; what was recorded is in {out} (railyard report {shown} shows it)")
        if options.json != "-" and (acted := acted_on(runner.record.manifest)):
            print(acted)
        return False
    drawn = out if not options.no_figures else None
    recorded = read_folder(runner.record.results, type(experiment), runner.record.cuts if drawn is None else None)
    if drawn is not None:
        _draw(experiment, drawn, recorded)
    _show(experiment, runner.rows, runner.record.settings, options, recorded.notes)
    _say_where(out, options)
    return recorded.partial is not None


def _draw(experiment: Experiment[Any], out: Path, recorded: Recorded | None = None) -> None:
    """Draw the figures of the results folder ``out``, whose content may be ``recorded``, and write its report."""
    from commands.page.report.file import write_report
    from experiments.redraw import redraw
    from measure.results.results import REPORT

    redraw(out, type(experiment), recorded)
    try:
        write_report([out], kind=type(experiment))
    except (RailyardError, OSError) as error:  # the run has its tables and its status all the same
        print(f"railyard: there is no {REPORT}: {error}", file=sys.stderr)


def _say_where(out: Path | None, options: argparse.Namespace) -> None:
    """Print where results are, if they are kept and the output is not JSON."""
    from measure.results.results import REPORT

    if out is None or options.json == "-":
        return
    if (out / REPORT).exists():
        print(f"Report (opens in a browser): {out / REPORT}")
    print(f"Results in {out}")


def _show(
    experiment: Experiment[Any],
    rows: Sequence[Row],
    settings: Mapping[str, Any],
    options: argparse.Namespace,
    notes: Sequence[str] = (),
) -> None:
    """Print the report, or JSON in its place; write the file of ``--json``."""
    from experiments.report import show

    if options.json is not None:
        write_json(options.json, json.dumps(experiment.as_json(rows), indent=2))
    if options.json != "-":
        show(experiment.report(), rows, settings, packets=experiment.packets, wide=options.wide, notes=notes)
