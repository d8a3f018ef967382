"""The Propius experiment: policies, parameter servers and trunks for jobs that share edge clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.experiment import Experiment
from experiments.job_point import Fabric
from experiments.propius import virtual
from experiments.propius.control.policies import load_edge_policy, rehearse
from experiments.propius.data.clients import check_run, stratified
from experiments.propius.data.jobs import EdgeJob
from experiments.propius.row import PropiusRow
from experiments.propius.settings import POLICY_STUDIES, PropiusSettings, Study, edge_fabric
from experiments.settings import MOST_POINTS
from railyard.errors import ConfigError

if TYPE_CHECKING:
    from experiments.propius.packet_run import PacketStudy
    from experiments.runner import Runner


def _refuse_unused(settings: PropiusSettings) -> None:
    """``ConfigError`` for options of all experiments with packets that mean nothing here."""
    if settings.controller == "remote":
        raise ConfigError(
            "must be os-ken or ryu: only Railyard's own controller drives an optical trunk", key="controller"
        )
    for key, given in (("pcap", settings.pcap), ("rest", settings.rest)):
        if given:
            raise ConfigError("is not there in this experiment; leave it out", key=key)


class Propius(Experiment[PropiusSettings]):
    """Collaborative-learning jobs that share edge clients: policies, parameter servers, faults, an optical trunk."""

    name = "propius"
    Settings = PropiusSettings
    rows = (PropiusRow,)
    quick: ClassVar = {
        "policies": ["random-client", "irs"],
        "loads": [48],
        "rounds": 1,
        "modes": ["fixed"],
        "virtual_clients": [6000],
        "virtual_rounds": 2,
        "kills": 2,
        "cases": ["leaf-killed", "manager-restarted"],
        "turns": ["phase"],
        "delays_ms": [500],
        "scale": {"time": 0.03},
    }
    examples = (
        "                          # all studies",
        "--quick                   # all studies, small",
        "--study jct --seeds 5     # completion times with intervals",
        "--study tree              # the data plane",
        "--study trouble --verify  # faults, with every sum checked",
        "--predict                 # virtual time alone; no root",
    )

    def check(self) -> None:
        """Refuse jobs that no clients can serve, policies that break a rule, and networks that cannot be built."""
        settings = self.settings
        _refuse_unused(settings)
        runs = len(settings.loads) * settings.seeds * len(settings.policies)
        if self._policy_studies:
            if runs > MOST_POINTS:
                raise ConfigError(
                    f"loads, seeds and policies give {runs} runs, and at most {MOST_POINTS} work; take fewer of one",
                    key="seeds",
                )
            for clients in settings.loads:
                for seed in range(settings.seed, settings.seed + settings.seeds):
                    self._check_clients(clients, seed, settings.jobs(), settings.policies)
        if "trouble" in settings.studies:
            self._check_clients(settings.clients, settings.seed, settings.five_jobs(), ())
        for fabric in self._fabrics():
            _ = fabric.plan()

    def _check_clients(self, clients: int, seed: int, jobs: Sequence[EdgeJob], policies: Sequence[str]) -> None:
        profiles = stratified(clients, self.settings.regions, seed)
        check_run(jobs, profiles)
        for policy in policies:
            rehearse(load_edge_policy(policy, seed), jobs, [each.attributes for each in profiles])

    def _fabrics(self) -> Iterator[Fabric]:
        from experiments.propius.round_study import trunk_fabric

        settings = self.settings
        yield edge_fabric(settings, settings.clients)
        yield from (edge_fabric(settings, clients) for clients in settings.loads if self._policy_studies)
        if "trunk" in settings.studies:
            yield from (trunk_fabric(settings, policy) for policy in ("electrical", *settings.turns))

    def predict(self) -> Iterator[PropiusRow]:
        """The policy studies in virtual time, and the formulas of the studies ``tree`` and ``trunk``."""
        settings = self.settings
        if not {*POLICY_STUDIES, "tree", "trunk"}.intersection(settings.studies):
            said = ", ".join(settings.studies)
            raise ConfigError(f"{said} have no model; use: railyard run propius --study {said}", key="studies")
        yield from self._authors_runs()
        for policy, clients, seed in self._points(settings.loads):
            row = virtual.policy_row(settings, policy, clients, seed, settings.jobs())
            model = virtual.predicted(settings, policy, clients, seed).metrics
            virtual.predict_into(row, model)
            row.finished = len(model.jobs) - len(model.unfinished)
            row.starved = ", ".join(settings.jobs()[number].name for number in model.unfinished) or None
            yield from self._of_studies(row)
        yield from (study.predict(settings, *point) for study, point in self._packet_points() if study.predict)

    def points(self) -> int:
        settings = self.settings
        policy_runs = len(list(self._points(settings.loads))) + len(list(self._points(settings.virtual_clients)))
        return len(list(self._packet_points())) + len(self._policy_studies) * policy_runs

    def run(self, runner: Runner) -> None:
        """Measure all studies that the settings name; what is computed in virtual time comes last."""
        from experiments.propius.packet_run import measure_policy

        settings = self.settings
        for run in self._points(settings.loads):
            row = measure_policy(runner, settings, *run)
            row.point = runner.number - 1
            runner.add(*self._of_studies(row))
        for study, point in self._packet_points():
            row = study.measure(runner, settings, *point)
            row.point = runner.number - 1
            runner.add(row)
        runner.progress.begin("computing in virtual time")
        for row in self._authors_runs():
            runner.add(row)

    # ---- inside --------------------------------------------------------------------------------------------------

    def _packet_points(self) -> Iterator[tuple[PacketStudy, tuple[Any, ...]]]:
        from experiments.propius.round_study import TREE, TRUNK
        from experiments.propius.trouble_study import TROUBLE

        for study in (TREE, TROUBLE, TRUNK):
            if study.name in self.settings.studies:
                yield from ((study, point) for point in study.points(self.settings))

    def _authors_runs(self) -> Iterator[PropiusRow]:
        settings = self.settings
        for policy, clients, seed in self._points(settings.virtual_clients):
            yield from self._of_studies(virtual.authors_row(settings, policy, clients, seed))

    def _of_studies(self, row: PropiusRow) -> Iterator[PropiusRow]:
        """The row of a run for each of the policy studies, which are views of the same runs."""
        return (replace(row, study=study) for study in POLICY_STUDIES if study in self.settings.studies)

    def _points(self, loads: Sequence[int]) -> Iterator[tuple[str, int, int]]:
        """(policy, clients, seed) of every run of the policy studies; those with as many clients together."""
        settings = self.settings
        for clients in loads if self._policy_studies else ():
            for seed in range(settings.seed, settings.seed + settings.seeds):
                for policy in settings.policies:
                    yield policy, clients, seed

    @property
    def _policy_studies(self) -> tuple[Study, ...]:
        return tuple(study for study in POLICY_STUDIES if study in self.settings.studies)
