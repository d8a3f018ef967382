"""Figures of the all-to-all experiment: time against bytes, ranks and delay for each policy, and the slots' duty cycle.

Each takes the rows of a summary (``experiment`` = ``all-to-all``) and is None where their variable does not vary. Rows
that name the ``study`` of a variable (``bytes``, ``ranks``, ``delay``, ``slot``, ``skew``) are used for it alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from measure.figures.curves import (
    Curve,
    Look,
    Points,
    Rows,
    curve,
    draw,
    key,
    label_ends,
    label_far,
    near_and_far,
    panel_rows,
    panel_title,
    size_in_words,
    value,
)
from measure.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIGHT,
    ORANGE,
    PURPLE,
    SKY,
    TEXT,
    VERMILION,
    dress,
    new_figure,
    time_unit,
)

EXPERIMENT = "all-to-all"
LOOKS = {
    "electrical": Look("electrical", GREEN, "s", (0, (5, 2))),
    "rotor": Look("rotor", BLUE, "o", size=9.5),
    "rotor-fixed": Look("rotor, fixed slots", SKY, "v", (0, (3, 1, 1, 1))),
    "valiant": Look("two hops (Valiant)", PURPLE, "P", (0, (2, 1))),
    "demand": Look("demand-aware", VERMILION, "^", (0, (1, 1)), 5.5),
    "multi-hop": Look("multi-hop", ORANGE, "D", (0, (4, 1))),
}
_BY_DELAY = ((BLUE, "o"), (VERMILION, "^"), (GREEN, "s"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"), (BLACK, "X"))
_SMOOTH = 60
_MOST_PANELS, _MOST_TICKS = 3, 7
_TARGET, _FAR = 1.05, 1.25
_DASHED, _DOTTED = (0, (4, 3)), (0, (1, 2))
_BROAD: dict[str, Any] = {"color": GREY, "linewidth": 4.5, "linestyle": (0, (1.6, 0.5)), "zorder": 1}
"""How a formula is drawn: broad and beneath, so that it is seen where model and measurement agree with it."""


@dataclass(frozen=True)
class _Variable:
    """What a figure is drawn against: its study, its column, and what else is the same within a panel."""

    study: str
    column: str
    label: str
    same: tuple[str, ...]


_BYTES = _Variable("bytes", "bytes_per_pair", "bytes per pair", ("n", "reconfiguration_delay_ms"))
_RANKS = _Variable("ranks", "n", "ranks n", ("bytes_per_pair", "reconfiguration_delay_ms"))
_DELAY = _Variable("delay", "reconfiguration_delay_ms", "reconfiguration delay (ms)", ("n", "bytes_per_pair"))
_SLOT = _Variable("slot", "slot_ms", "slot length (ms)", ("n",))
_OWN_STUDIES = ("bytes", "ranks", "delay", "slot", "skew")


def all_to_all_figures(rows: Rows) -> dict[str, Figure]:
    """Every figure that the rows vary enough for, by name; rows of other experiments are passed over."""
    rows = [row for row in rows if row["experiment"] == EXPERIMENT]
    made = {
        "all_to_all_bytes": time_against(rows, _BYTES),
        "all_to_all_ranks": time_against(rows, _RANKS),
        "all_to_all_delay": time_against(rows, _DELAY),
        "all_to_all_duty": duty_against_slot(rows),
        "all_to_all_skew": uneven_demand(rows),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


# ---- time ----------------------------------------------------------------------------------------------------------


def time_against(rows: Rows, variable: _Variable) -> Figure | None:
    """Time of the all-to-all, a curve for each policy, and below it the same over the formula.

    Measured marks, the model's lines, the formula (n - 1)(D/B + T) dashed; a column for each setting of what else there
    is. An electrical rail has no delay: it stands in every column of its n and size.
    """
    rows = [row for row in _study(rows, variable.study) if row.get("time_s")]
    groups = _groups(rows, variable)
    if not groups:
        return None
    figure = new_figure(8.6 if len(groups) == 1 else 1.0 + 5.6 * len(groups), 6.6)
    axes = figure.subplots(2, len(groups), squeeze=False, sharex="col", height_ratios=(3, 2))
    drawn = []
    for column, here in enumerate(groups):
        drawn.append(_time_panel(axes[0][column], here, variable))
        _ratio_panel(axes[1][column], here, variable)
    target = Line2D([], [], color=TEXT, linewidth=0.8, linestyle=_DOTTED, label=f"{_TARGET:g} × formula")
    key(figure, drawn, _formula_key("formula: (n − 1)(D/B + T) in turns, else the wire's bound"), target)
    return figure


def _study(rows: Rows, name: str) -> Rows:
    """The rows of a study; where there are none, those that were measured for no study of their own."""
    mine = [row for row in rows if row.get("study") == name]
    return mine or [row for row in rows if row.get("study") not in _OWN_STUDIES]


def _groups(rows: Rows, variable: _Variable) -> list[Rows]:
    """The rows of each panel, those of the electrical rail among them."""
    optical = [row for row in rows if row["policy"] != "electrical"]
    groups: Sequence[Rows] = panel_rows(optical or rows, value(variable.column), variable.same)
    shared = [name for name in variable.same if name != "reconfiguration_delay_ms"]
    found: list[Rows] = []
    for group in groups[:_MOST_PANELS]:
        beside = [
            row for row in rows if row["policy"] == "electrical" and all(row[name] == group[0][name] for name in shared)
        ]
        found.append([row for row in group if row["policy"] != "electrical"] + beside)
    return found


def _series(rows: Rows) -> dict[str, tuple[Look, Rows]]:
    """The rows of each policy; those of different slot lengths apart."""
    found: dict[str, tuple[Look, Rows]] = {}
    names = {row["policy"] for row in rows}
    for policy in [*(name for name in LOOKS if name in names), *sorted(names - set(LOOKS))]:
        look = LOOKS.get(policy, Look(policy, BLACK, "X"))
        mine = [row for row in rows if row["policy"] == policy]
        slots = sorted({row.get("slot_ms") or 0.0 for row in mine})
        for marker, slot in zip((look.marker, *"v<>^*" * len(slots)), slots, strict=False):
            named = replace(look, name=f"{look.name}, {slot:g} ms", marker=marker) if slot and len(slots) > 1 else look
            found[f"{policy} {slot:g}" if slot else policy] = (
                named,
                [row for row in mine if (row.get("slot_ms") or 0.0) == slot],
            )
    return found


def _curves(rows: Rows, variable: _Variable, y: str, model: str, factor: float = 1.0) -> dict[str, Curve]:
    """A curve for each series that has more than one point, and for the electrical rail."""
    x = value(variable.column)
    places = [place for row in rows if (place := x(row)) is not None]
    found: dict[str, Curve] = {}
    for name, (look, mine) in _series(rows).items():
        one = curve(look, mine, x, value(y, factor), value(model, factor))
        if mine[0]["policy"] == "electrical" and variable is _DELAY:
            one = replace(one, model=_level(one.model, places))
        if len({place for place, _ in one.points}) > 1:
            found[name] = one
    return found


def _level(points: Points, places: Sequence[float]) -> Points:
    """A single point as a level line over all of the axis."""
    return [(place, points[0][1]) for place in (min(places), max(places))] if len(points) == 1 else points


def _time_panel(axes: Axes, rows: Rows, variable: _Variable) -> dict[str, Curve]:
    factor, unit = time_unit(max(row["time_s"] for row in rows))
    drawn = _curves(rows, variable, "time_s", "predicted_time_s", factor)
    wide = variable is _BYTES
    near, far = (drawn, {}) if wide else near_and_far(drawn)
    draw(axes, near)
    for points in _distinct(_curves(rows, variable, "formula_s", "formula_s", factor).values()):
        axes.plot(*zip(*points, strict=True), **_BROAD)
    if wide:
        _log_time(axes)
    else:
        axes.set_ylim(0, (1.2 if far else 1.06) * max(y for one in near.values() for _, y in one.points))
    panel_title(axes, _what(rows, variable), "", f"time ({unit})")
    label_ends(axes, near)
    label_far(axes, far, unit)
    return drawn


def _distinct(formulas: Iterable[Curve]) -> list[Points]:
    """Each line once: the formula of most policies is the same."""
    return list({tuple((x, float(f"{y:.6g}")) for x, y in one.model): one.model for one in formulas}.values())


def _log_time(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _ratio_panel(axes: Axes, rows: Rows, variable: _Variable) -> None:
    """Time over the formula, of the policies that come near it; of the others the number alone."""
    drawn = _curves([_over_formula(row) for row in rows if row.get("formula_s")], variable, "ratio", "model_ratio")
    far = {name: one for name, one in drawn.items() if min(y for _, y in one.points) > _FAR}
    near = {name: one for name, one in drawn.items() if name not in far}
    _mark_one(axes)
    draw(axes, near)
    panel_title(axes, "", variable.label, "time / formula")
    every = [y for one in near.values() for _, y in one.points]
    low, high = min([0.98, *every]), max([_TARGET, *every])
    axes.set_ylim(low - 0.08 * (high - low), high + (0.15 + 0.12 * len(far)) * (high - low))
    _ticks(axes, variable, {row[variable.column] for row in rows})
    label_far(axes, far, "× formula")


def _over_formula(row: Mapping[str, Any]) -> Mapping[str, Any]:
    model = row.get("predicted_time_s")
    ratio = row["time_s"] / row["formula_s"]
    return {**row, "ratio": ratio, "model_ratio": None if model is None else model / row["formula_s"]}


def _mark_one(axes: Axes) -> None:
    """The formula itself, and how far above it a measurement should stay."""
    axes.axhline(1.0, **_BROAD)
    axes.axhline(_TARGET, color=TEXT, linewidth=0.8, linestyle=_DOTTED, zorder=1)


def _ticks(axes: Axes, variable: _Variable, places: set[Any]) -> None:
    """A tick where something was measured; fewer where these would crowd."""
    ordered = sorted(place for place in places if place is not None)
    if variable is _BYTES:
        ordered = ordered[:: -(-len(ordered) // _MOST_TICKS)]
        axes.set_xticks(ordered, [size_in_words(size) for size in ordered])
    else:
        axes.set_xticks(ordered, [f"{place:g}" for place in ordered])
    axes.xaxis.set_minor_locator(NullLocator())


def _what(rows: Rows, variable: _Variable) -> str:
    """What a panel shows: ``All-to-all, n = 8, 4 MB per pair, 20 ms``."""
    row = next((row for row in rows if row["policy"] != "electrical"), rows[0])
    parts = ["All-to-all"]
    if "n" in variable.same:
        parts.append(f"n = {row['n']}")
    if "bytes_per_pair" in variable.same:
        parts.append(f"{size_in_words(row['bytes_per_pair'])} per pair")
    if "reconfiguration_delay_ms" in variable.same:
        parts.append(f"T = {row['reconfiguration_delay_ms']:g} ms")
    return ", ".join(parts)


def _formula_key(label: str) -> Line2D:
    handle = Line2D([], [], **_BROAD)
    handle.set_label(label)
    return handle


# ---- duty cycle ----------------------------------------------------------------------------------------------------


def duty_against_slot(rows: Rows) -> Figure | None:
    """Share of the time in which data moved, against the length of a fixed slot; below it the time that it took.

    Dashed: slot / (slot + T), what the light allows; dotted: the same less the guard time at the end of each slot.
    """
    rows = [row for row in _study(rows, "slot") if row.get("slot_ms") and row.get("duty_cycle") is not None]
    groups = panel_rows(rows, value("slot_ms"), _SLOT.same)[:_MOST_PANELS]
    if not groups:
        return None
    figure = new_figure(8.6 if len(groups) == 1 else 1.0 + 5.6 * len(groups), 6.6)
    axes = figure.subplots(2, len(groups), squeeze=False, sharex="col", height_ratios=(3, 2))
    drawn = []
    for column, here in enumerate(groups):
        drawn += [_duty_panel(axes[0][column], here), _slot_time_panel(axes[1][column], here)]
    light = Line2D([], [], color=TEXT, linewidth=1.1, linestyle=_DASHED, label="slot / (slot + T)")
    guard = Line2D([], [], color=TEXT, linewidth=1.1, linestyle=_DOTTED, label="less the guard time")
    formula = _formula_key("formula of the time")
    key(figure, drawn, light, *([guard] if any(row.get("guard_ms") for row in rows) else []), formula)
    return figure


def _by_delay(rows: Rows) -> dict[str, tuple[Look, Rows]]:
    """The rows of each delay, and of each policy where there are several."""
    several = len({row["policy"] for row in rows}) > 1
    found: dict[tuple[float, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["reconfiguration_delay_ms"], row["policy"] if several else ""].append(row)
    series: dict[str, tuple[Look, Rows]] = {}
    for (delay, policy), (colour, marker) in zip(sorted(found), _BY_DELAY * len(found), strict=False):
        name = f"T = {delay:g} ms"
        if several:
            name += f", {LOOKS[policy].name if policy in LOOKS else policy}"
        series[name] = Look(name, colour, marker), found[delay, policy]
    return series


def _duty_panel(axes: Axes, rows: Rows) -> dict[str, Curve]:
    x = value("slot_ms")
    slots = [row["slot_ms"] for row in rows]
    lowest, drawn = 1.0, {}
    for name, (look, mine) in _by_delay(rows).items():
        drawn[name] = curve(look, mine, x, value("duty_cycle"), lambda _: None)
        delay, guard = mine[0]["reconfiguration_delay_ms"], mine[0].get("guard_ms") or 0.0
        for kept, dashes in {0.0: _DASHED, **({guard: _DOTTED} if guard else {})}.items():
            line = [(slot, (slot - kept) / (slot + delay)) for slot in _between(min(slots), max(slots))]
            axes.plot(*zip(*line, strict=True), color=look.colour, linewidth=1.1, linestyle=dashes, zorder=2)
            lowest = min(lowest, *(share for _, share in line), *(share for _, share in drawn[name].measured))
    draw(axes, drawn)
    axes.set_ylim(max(0.0, lowest - 0.12 * (1 - lowest)), 1.0 + 0.04 * (1 - lowest))
    _slot_axis(axes, slots)
    panel_title(axes, f"Duty cycle of the slots, n = {rows[0]['n']}", "", "duty cycle")
    label_ends(axes, {name: replace(one, model=_ends(one, slots)) for name, one in drawn.items()})
    return drawn


def _ends(one: Curve, slots: Sequence[float]) -> Points:
    """Where the name of a curve stands: at its last mark."""
    return [(max(slots), one.measured[-1][1])]


def _slot_time_panel(axes: Axes, rows: Rows) -> dict[str, Curve]:
    """The time itself; where sizes differ within the panel, the time over the formula."""
    rows = [row for row in rows if row.get("formula_s") and row.get("time_s")]
    same = len({row["bytes_per_pair"] for row in rows}) == 1
    factor, unit = time_unit(max((row["time_s"] for row in rows), default=1.0))
    if same:
        y, model, formula = value("time_s", factor), value("predicted_time_s", factor), value("formula_s", factor)
    else:
        rows = [_over_formula(row) for row in rows]
        y, model, formula = value("ratio"), value("model_ratio"), lambda _: 1.0
    series = _by_delay(rows)
    drawn = {name: curve(look, mine, value("slot_ms"), y, model) for name, (look, mine) in series.items()}
    lines = [curve(look, mine, value("slot_ms"), formula, formula) for look, mine in series.values()]
    for points in _distinct(lines):
        axes.plot(*zip(*points, strict=True), **_BROAD)
    draw(axes, drawn)
    panel_title(axes, "", _SLOT.label, f"time ({unit})" if same else "time / formula")
    _slot_axis(axes, [row["slot_ms"] for row in rows])
    return drawn


def _slot_axis(axes: Axes, slots: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(slots) / 1.06, max(slots) * 1.06)
    _ticks(axes, _SLOT, set(slots))


def _between(low: float, high: float) -> list[float]:
    """Places from ``low`` to ``high`` for a line that bends, by equal factors."""
    return [low * (high / low) ** (step / _SMOOTH) for step in range(_SMOOTH + 1)]


# ---- uneven demand -------------------------------------------------------------------------------------------------


def uneven_demand(rows: Rows) -> Figure | None:
    """A bar for each way of carrying the same uneven demand; the model as a line across it, the formula broad."""
    rows = [row for row in rows if row.get("study") == "skew" and row.get("time_s")]
    groups = panel_rows(rows, lambda _: 0.0, ("n", "bytes_per_pair"), least=1)[:_MOST_PANELS]
    if not groups:
        return None
    tallest = max(len(_series(group)) for group in groups)
    figure = new_figure(8.6 if len(groups) == 1 else 1.0 + 5.6 * len(groups), 1.6 + 0.55 * tallest)
    axes = figure.subplots(1, len(groups), squeeze=False)[0]
    for panel, here in zip(axes, groups, strict=True):
        _bars(panel, here)
    measured = Line2D([], [], color=GREY, linewidth=8, label="measured")
    model = Line2D([], [], color=BLACK, linewidth=1.6, label="model")
    handles = [measured, model, _formula_key("formula: turns as long as their longest transfer, else the wire's bound")]
    figure.legend(handles=handles, loc="outside upper left", frameon=False, fontsize=9, ncols=3)
    return figure


def _bars(axes: Axes, rows: Rows) -> None:
    factor, unit = time_unit(max(row["time_s"] for row in rows))
    longest = max(row["time_s"] for row in rows) * factor
    named = list(_series(rows).values())
    for place, (look, mine) in enumerate(named):
        one = curve(look, mine, lambda _: 0.0, value("time_s", factor), value("predicted_time_s", factor))
        ((_, time),) = one.measured
        bad = bool(one.unfaithful)
        axes.barh(
            place, time, 0.62, color="white" if bad else look.colour, edgecolor=look.colour, hatch="//" if bad else None
        )
        axes.text(time + 0.012 * longest, place, f"{time:.3g}", va="center", fontsize=9, color=TEXT)
        for x in {row["formula_s"] * factor for row in mine if row.get("formula_s")}:
            axes.plot((x, x), (place - 0.38, place + 0.38), **_BROAD | {"zorder": 3, "linewidth": 3.5})
        for _, x in one.model:
            axes.plot((x, x), (place - 0.31, place + 0.31), color=BLACK, linewidth=1.6, zorder=4)
    axes.set_yticks(range(len(named)), [look.name for look, _ in named])
    axes.set_ylim(len(named) - 0.4, -0.6)
    axes.set_xlim(0, 1.1 * longest)
    axes.grid(axis="x", color=LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    title = f"Uneven all-to-all, n = {rows[0]['n']}, {size_in_words(rows[0]['bytes_per_pair'])} per pair on average"
    dress(axes, title, f"time ({unit})", "")
