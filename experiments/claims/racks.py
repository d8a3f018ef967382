"""Claims about LUMION and MORPHLUX: recovery from a dead chip, ports that are steered, slices of racks."""

from __future__ import annotations

from experiments.claims.claim import Claim, Tolerance
from experiments.claims.numbers import in_repeats, ratio, share, value, where
from experiments.server_fabric.row import gain
from measure.published import published

_SHAPE = "2x1x1"
_FAULT = {"tenant": "A"}
_REQUESTS = {"study": "protocols", "protocol": "cluster", "asked": "32"}
_PHOTONIC, _FIXED, _E1, _MIGRATE = (where(fabric=name, **_FAULT) for name in ("photonic", "fixed", "e1", "migrate"))


def _gain(name: str, measure: str, says: str, note: str = "") -> Claim:
    """The claim that photonic ports gain in ``measure`` as they do on MORPHLUX's testbed."""
    key = f"morphlux-{measure}"
    return Claim(
        name=name,
        system="MORPHLUX",
        says=says,
        run="server-fabric",
        rows=where(measure=measure, shape=_SHAPE),
        number=in_repeats(lambda rows: gain(rows, measure, _SHAPE)),
        source=key,
        expected=published(key).values[_SHAPE],
        tolerance=Tolerance(share=0.05),
        unit="x",
        note=note,
    )


RECOVERY: tuple[Claim, ...] = (
    Claim(
        name="lumion-circuits",
        system="LUMION",
        says="Circuits to a spare are up soon after a chip dies, no later than on the testbed of the same group",
        run="failover",
        rows=_PHOTONIC,
        number=value("circuits_s"),
        source="morphlux-circuits",
        tolerance=Tolerance(side="most"),
        unit="s",
        note="The parts are others: ours are detection and a delay, both settings; theirs is mostly the programming "
        "of a mesh.",
    ),
    Claim(
        name="lumion-restart",
        system="LUMION",
        says="The job is restarted about a second after the failure",
        run="failover",
        rows=_PHOTONIC,
        number=value("outage_s"),
        source="lumion-restart",
        tolerance=Tolerance(share=0.2, side="most"),
        unit="s",
        note="Ours ends with the first step, and more than half of it is the copy of a checkpoint of 4.9 GB over a "
        "10 Gb/s port; the abstract gives no parts.",
    ),
    Claim(
        name="lumion-outage",
        system="LUMION",
        says="The outage with a spliced spare is as long as predicted",
        run="failover",
        rows=_PHOTONIC,
        number=value("outage_s"),
        source="model",
        expected=value("predicted_outage_s"),
        tolerance=Tolerance(share=0.05),
        unit="s",
        note="The model's is the mean over all moments at which the chip may die between two heartbeats.",
    ),
    Claim(
        name="lumion-migration",
        system="LUMION",
        says="Moving the job to another rack makes the outage several times as long as splicing in a spare",
        run="failover",
        rows=where(fabric=("photonic", "migrate"), **_FAULT),
        number=ratio("outage_s", _MIGRATE, _PHOTONIC),
        source="model",
        expected=ratio("predicted_outage_s", _MIGRATE, _PHOTONIC),
        tolerance=Tolerance(share=0.05),
        unit="x",
        note="Ten of its seconds are an input of ours (`migration-rewiring`).",
    ),
    Claim(
        name="lumion-throughput",
        system="LUMION",
        says="After the replacement a step is nearly twice as fast as on an electrical rack",
        run="failover",
        rows=where(fabric=("photonic", "e1"), **_FAULT),
        number=ratio("step_time_after_s", _E1, _PHOTONIC),
        source="lumion-throughput",
        tolerance=Tolerance(share=0.1),
        unit="x",
        note="Most of it is the steering of ports, which holds before the failure too (`lumion-steering`).",
    ),
    Claim(
        name="lumion-steering",
        system="LUMION",
        says="Steering all ports to the ring makes a step faster, before a failure and after",
        run="failover",
        rows=where(fabric=("photonic", "fixed"), **_FAULT),
        number=ratio("step_time_after_s", _FIXED, _PHOTONIC),
        source="model",
        expected=ratio("predicted_step_time_after_s", _FIXED, _PHOTONIC),
        tolerance=Tolerance(share=0.02),
        unit="x",
    ),
    Claim(
        name="lumion-splice",
        system="LUMION",
        says="Splicing in the spare makes a step faster than reaching it over the links of others",
        run="failover",
        rows=where(fabric=("fixed", "e1"), **_FAULT),
        number=ratio("step_time_after_s", _E1, _FIXED),
        source="model",
        expected=ratio("predicted_step_time_after_s", _E1, _FIXED),
        tolerance=Tolerance(share=0.02),
        unit="x",
    ),
    Claim(
        name="lumion-sums",
        system="LUMION",
        says="No step of a job is lost or counted twice: the share of jobs with the sums of an undisturbed one",
        run="failover",
        rows=where(**_FAULT),
        number=share(where(checksum_ok=True)),
        source="law",
        expected=1.0,
        tolerance=Tolerance(),
    ),
)

SLICES: tuple[Claim, ...] = (
    _gain("morphlux-iperf3", "iperf3", "Steering both ports of a host to its peer doubles the bandwidth"),
    _gain(
        "morphlux-all-reduce",
        "all-reduce",
        "It makes an all-reduce faster",
        "A second port is worth more here than its hosts made of it.",
    ),
    _gain("morphlux-epoch", "epoch", "It makes an epoch of fine-tuning faster, at batch 8"),
    Claim(
        name="morphlux-outage",
        system="MORPHLUX",
        says="With its start-up stages the first step after a host's death ends as late as on the testbed",
        run="server-fabric",
        rows=where(fabric="photonic", tenant="A"),
        number=value("outage_s"),
        source="morphlux-timeline",
        expected=published("morphlux-timeline").values["first step"],
        tolerance=Tolerance(share=0.1),
        unit="s",
        note="15.5 s of it are given: the stages are set to the differences of its timeline.",
    ),
    Claim(
        name="morphlux-index",
        system="MORPHLUX",
        says="With contiguous slices a rack of which 20 % are freed has an index of fragmentation of up to 0.7",
        run="allocation",
        rows=where(study="fragmentation", system="contiguous", freed=0.2),
        number=value("index_max"),
        source="morphlux-index",
        expected=published("morphlux-index").values["contiguous"],
        tolerance=Tolerance(points=0.05),
    ),
    Claim(
        name="morphlux-failed",
        system="MORPHLUX",
        says="Of the requests for 32 chips three quarters fail on contiguous slices, for its mix with 30 % free",
        run="allocation",
        rows=where(**_REQUESTS, system="contiguous"),
        number=value("failed_share"),
        source="morphlux-failed",
        expected=published("morphlux-failed").values["contiguous"],
        tolerance=Tolerance(points=0.1),
        note="If the cluster is asked for the free chips of all racks ([racks.md](racks.md)).",
    ),
    Claim(
        name="morphlux-none-failed",
        system="MORPHLUX",
        says="None of them fails with slices made of fragments",
        run="allocation",
        rows=where(**_REQUESTS, system="morphlux"),
        number=value("failed_share"),
        source="morphlux-failed",
        expected=published("morphlux-failed").values["morphlux"],
        tolerance=Tolerance(points=0.01),
        note="A slice within a rack cannot hold to this; if every rack is asked for its own chips none fails, but then "
        "contiguous slices fail far less than three quarters.",
    ),
    Claim(
        name="morphlux-served",
        system="MORPHLUX",
        says="Of requests for 16 and 32 chips it serves 1.2 times as many as contiguous slices",
        run="allocation",
        rows=where(study="protocols", protocol="cluster", asked="16,32", system="morphlux"),
        number=value("served_ratio"),
        source="morphlux-served",
        expected=published("morphlux-served").values["16,32"],
        tolerance=Tolerance(share=0.1),
        unit="x",
    ),
    Claim(
        name="morphlux-moved-slice",
        system="MORPHLUX",
        says="After one failure moving a slice as a whole takes about ten times as many chips out of use",
        run="allocation",
        rows=where(study="overprovision", system="block", failures=1),
        number=value("ratio_to_morphlux"),
        source="morphlux-overprovision",
        expected=published("morphlux-overprovision").values["block"],
        tolerance=Tolerance(share=0.2),
        unit="x",
    ),
)
