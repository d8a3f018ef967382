"""The failover experiment: what a dead chip costs a training job, with spares of different kinds (LUMION)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from controllers.policies.catalog import rehearse
from experiments.racks.failover.settings import LIGHT_NEIGHBOUR, FailoverSettings
from experiments.racks.forecast import predicted_rows
from experiments.racks.row import NEIGHBOUR, FailoverRow, add_ratios
from experiments.racks.run import play
from experiments.repeats import Piece, RepeatedExperiment
from measure.results.row import MeasuredRow
from railyard.digits import alike
from workloads.program import Group

if TYPE_CHECKING:
    from experiments.report import Report
    from experiments.runner import Runner


class Failover(RepeatedExperiment[FailoverSettings]):
    """Cost of a dead accelerator for a job: kills on a photonic rack, on electrical racks, and with migration."""

    name = "failover"
    Settings = FailoverSettings
    rows = (FailoverRow,)
    quick: ClassVar = {"fabrics": ["photonic", "e1"], "steps": 6, "kill": "1@3.5", "job": {"checkpoint_every": 2}}
    examples = (
        "                                                # five fabrics, with a second tenant",
        "--quick                                         # photonic and E1, fewer steps",
        "--fabrics photonic --kill 1@4.5,16@+0.5         # the spare, too",
        "--fabrics photonic,fixed,e1                     # steering and splice apart",
        "--fabrics photonic --stages lumion              # 1.1 s to reprogram the mesh",
        "--fabrics photonic --stages morphlux            # start-up stages with MORPHLUX's times",
        "--fabrics photonic --random-kills 20 --time 0.2",
        "--fabrics photonic --controller-dies-after 300",
        "--predict                                       # the model alone; no root",
    )

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """``--kill`` and ``--random-kills`` replace each other; options of the neighbour keep the others' defaults."""
        kills = [key for key in ("kill", "random_kills") if key in given]
        if len(kills) == 1:
            values.pop("random_kills" if kills == ["kill"] else "kill", None)
        elif not kills and values.get("random_kills"):  # of the file, which has no kill beside: this one is of --quick
            values.pop("kill", None)
        if isinstance(given.get("neighbour"), Mapping):
            values["neighbour"] = {**LIGHT_NEIGHBOUR.model_dump(), **values["neighbour"]}
        return values

    def check(self) -> None:
        """Build every plan, rehearse its policy, and check the kills."""
        for name in self.settings.fabrics:
            setting = self.settings.setting(name)
            self.settings.kills(setting.plan)
            assert setting.plan.rack is not None
            rings = [Group(tenant.name, "dp", tenant.ranks) for tenant in setting.plan.rack.tenants]
            rehearse(setting.policy, setting.plan, rings)

    def predict(self) -> list[FailoverRow]:
        """A row of the model for every fabric and every kill that hits a job; of random kills the first."""
        rows: list[FailoverRow] = []
        for name in self.settings.fabrics:
            setting = self.settings.setting(name)
            kills = self.settings.kills_by_run(setting.plan)[0]
            rows += predicted_rows(self.settings.specs(setting), kills, self.settings.seed)
        add_ratios(rows)
        return rows

    def points(self) -> int | None:
        """A row for every job of every run; None if a run has more than one kill, or one of a spare.

        A first kill may replace members by spares or move the whole job, and a later one may come after the job's end.
        """
        rows = 0
        for name in self.settings.fabrics:
            setting = self.settings.setting(name)
            members = [spec.members for spec in self.settings.specs(setting)]
            for kills in self.settings.kills_by_run(setting.plan):
                if len(kills) > 1 or not any(kill.rank in ranks for kill in kills for ranks in members):
                    return None
                rows += len(members)
        return rows

    def pieces(self) -> list[Piece]:
        """Every run on every fabric, with its kills."""
        found = []
        for name in self.settings.fabrics:
            for kills in self.settings.kills_by_run(self.settings.setting(name).plan):
                found.append(Piece(f"{name}, kill {','.join(map(str, kills))}", (name, kills)))
        return found

    def measure(self, runner: Runner, piece: Piece) -> list[FailoverRow]:
        """Bring one fabric up anew and run its jobs, with the kills of one run."""
        name, kills = piece.of
        after_ms = self.settings.controller_dies_after_ms
        dies_after_s = None if after_ms is None else after_ms / 1e3
        specs = self.settings.specs(self.settings.setting(name))
        rows = play(runner, specs, kills, controller_dies_after_s=dies_after_s).rows()
        for row in rows:
            if row.event != NEIGHBOUR:
                runner.progress.result(_outcome(row))
        return rows

    def relate(self, rows: Sequence[MeasuredRow]) -> None:
        """Set the step times relative to the photonic rack."""
        add_ratios(rows)

    def same(self, row: MeasuredRow) -> Hashable:
        """The job and what happened to it: a run may end before its last kill."""
        return (row.tenant, row.event) if isinstance(row, FailoverRow) else None

    @classmethod
    def report(cls) -> Report:
        """Tables and figures of the recoveries."""
        from experiments.racks.failover.report import REPORT

        return REPORT


def _outcome(row: FailoverRow) -> str:
    """The progress line of a row: outcome, outage, step times and verdict."""
    if row.outage_s is None:
        return f"{row.tenant}: {row.state}" + (f" ({row.reason})" if row.reason else "")
    form = alike((row.step_time_before_s, row.step_time_after_s))
    return (
        f"{row.tenant}: circuits up after {row.circuits_s:.3f} s, out for {row.outage_s:.2f} s, step "
        f"{form(row.step_time_before_s or 0)} s before and {form(row.step_time_after_s or 0)} s after; {row.verdict}"
    )
