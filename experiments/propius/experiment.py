"""The Propius experiment: policies, parameter servers and trunks for jobs that share edge clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from controllers.edge.catalog import load_edge_policy
from controllers.edge.guard import rehearse
from experiments.experiment import Experiment
from experiments.propius import virtual
from experiments.propius.network import edge_fabric
from experiments.propius.row import PropiusRow
from experiments.propius.settings import POLICY_STUDIES, PropiusSettings, Study
from workloads.edge.check import check_run
from workloads.edge.population import stratified

if TYPE_CHECKING:
    from experiments.runner import Runner


class Propius(Experiment[PropiusSettings]):
    """Collaborative-learning jobs that share edge clients: policies, parameter servers, faults, an optical trunk."""

    name = "propius"
    Settings = PropiusSettings
    rows = (PropiusRow,)
    quick: ClassVar = {
        "policies": ["random-client", "irs"],
        "loads": [44],
        "rounds": 2,
        "modes": ["fixed"],
        "virtual_clients": [6000],
        "virtual_rounds": 5,
        "accepts": 2000,
        "kills": 3,
        "cases": ["leaf-killed", "manager-restarted"],
        "micro_mb": 1.0,
        "micro_delays_ms": [20],
        "repetitions": 1,
        "at_once": [64],
        "load_s": 1,
        "turns": ["phase"],
        "delays_ms": [500],
        "scale": {"time": 0.02},
    }
    examples = (
        "                          # all studies",
        "--quick                   # all studies, small",
        "--study jct --seeds 5     # completion times with intervals",
        "--study tree,micro        # the data plane",
        "--study trouble --verify  # faults, with every sum checked",
        "--predict                 # virtual time alone; no root",
    )

    def check(self) -> None:
        """Refuse jobs that no clients can serve, policies that break a rule, and networks that cannot be built."""
        settings = self.settings
        for clients, jobs in (
            (settings.clients, settings.five_jobs()),
            *((n, settings.jobs()) for n in settings.loads),
        ):
            profiles = stratified(clients, settings.regions, settings.seed)
            check_run(jobs, profiles)
            for policy in settings.policies:
                rehearse(load_edge_policy(policy, settings.seed), jobs, [each.attributes for each in profiles])
            _ = edge_fabric(settings, clients).plan()

    def predict(self) -> Iterator[PropiusRow]:
        """The policy studies in virtual time, and the formulas of the studies ``tree``, ``micro`` and ``trunk``."""
        from experiments.propius.data_study import micro_rows, tree_points, tree_row
        from experiments.propius.trunk_study import trunk_points, trunk_row

        settings = self.settings
        yield from self._authors_runs()
        for policy, clients, seed in self._points():
            row = virtual.policy_row(settings, policy, clients, seed, settings.jobs())
            virtual.predict_into(row, virtual.predicted(settings, policy, clients, seed).metrics)
            yield from self._of_studies(row)
        if "tree" in settings.studies:
            yield from (tree_row(settings, *point) for point in tree_points(settings))
        for delay_ms in settings.micro_delays_ms if "micro" in settings.studies else ():
            yield from micro_rows(settings, delay_ms).values()
        if "trunk" in settings.studies:
            yield from (trunk_row(settings, *point) for point in trunk_points(settings))

    def run(self, runner: Runner) -> None:
        """Measure all studies that the settings name; what is computed in virtual time comes last."""
        from experiments.propius.control_study import measure_accept, measure_control
        from experiments.propius.data_study import measure_micro, measure_tree
        from experiments.propius.policy_study import measure_policies
        from experiments.propius.trouble_study import measure_trouble
        from experiments.propius.trunk_study import measure_trunk

        settings = self.settings
        for row in measure_policies(runner, settings, self._points()):
            runner.add(*self._of_studies(row))
        measure = {
            "tree": measure_tree,
            "micro": measure_micro,
            "control": measure_control,
            "accept": measure_accept,
            "trouble": measure_trouble,
            "trunk": measure_trunk,
        }
        for study, rows in measure.items():
            for row in rows(runner, settings) if study in settings.studies else ():
                runner.add(row)
        runner.progress.begin("computing in virtual time")
        for row in self._authors_runs():
            runner.add(row)

    # ---- inside --------------------------------------------------------------------------------------------------

    def _authors_runs(self) -> Iterator[PropiusRow]:
        for clients in self.settings.virtual_clients if self._policy_studies else ():
            for policy in self.settings.policies:
                yield from self._of_studies(virtual.authors_row(self.settings, policy, clients, self.settings.seed))

    def _of_studies(self, row: PropiusRow) -> Iterator[PropiusRow]:
        """The row of a run for each of the policy studies, which are views of the same runs."""
        return (replace(row, study=study) for study in POLICY_STUDIES if study in self.settings.studies)

    def _points(self) -> Iterator[tuple[str, int, int]]:
        """(policy, clients, seed) of every run of the policy studies; those on one fabric together."""
        settings = self.settings
        for clients in settings.loads if self._policy_studies else ():
            for seed in range(settings.seed, settings.seed + settings.seeds):
                for policy in settings.policies:
                    yield policy, clients, seed

    @property
    def _policy_studies(self) -> tuple[Study, ...]:
        return tuple(study for study in POLICY_STUDIES if study in self.settings.studies)
