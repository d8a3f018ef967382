"""Claims about LUMION and MORPHLUX: recovery from a dead chip, ports that are steered, slices of racks."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.claims.claim import Claim, Tolerance
from experiments.claims.numbers import in_repeats, ratio, share, value, where
from experiments.server_fabric.row import gain
from measure.published import published

_SHAPE = "2x1x1"
_FAULT = {"tenant": "A"}
_GIVEN_S = published("morphlux-timeline").between("rewire", "load")
"""Start-up stages of a restart, which are set to those of the timeline."""
_REQUESTS = {"study": "protocols", "protocol": "cluster", "asked": "32"}
_PHOTONIC, _FIXED, _E1, _MIGRATE = (where(fabric=name, **_FAULT) for name in ("photonic", "fixed", "e1", "migrate"))


_IPERF3, _ALL_REDUCE = (published(f"morphlux-{name}").values[_SHAPE] for name in ("iperf3", "all-reduce"))
_EPOCHS = published("morphlux-epoch-batch").values
_FIRST_STEP_S = published("morphlux-timeline").between("load", "first step")


def _implied_gain(batch: int) -> float:
    """By how much faster an all-reduce over two ports must be than over one, for the authors' epochs of a batch."""
    one_port_s = published("llama-1b-gradients").value / published("morphlux-port").value
    one_port_s *= published("morphlux-steps").values[batch]
    electrical, photonic = (published(f"morphlux-epoch-{name}").values[batch] for name in ("electrical", "photonic"))
    return one_port_s / (one_port_s - (electrical - photonic))


IMPLIED_GAINS = {batch: _implied_gain(batch) for batch in _EPOCHS}


def _in_words(gains: Mapping[int, float]) -> str:
    return ", ".join(f"{gain:.2f}x at batch {batch}" for batch, gain in gains.items())


def _gain(name: str, measure: str, says: str, why: str = "") -> Claim:
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
        why=why,
    )


RECOVERY: tuple[Claim, ...] = (
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
        says="Moving the job to another rack makes the outage at least twice as long as splicing in a spare",
        run="failover",
        rows=where(fabric=("photonic", "migrate"), **_FAULT),
        number=ratio("outage_s", _MIGRATE, _PHOTONIC),
        source="limit",
        expected=2.0,
        tolerance=Tolerance(side="least"),
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
        note="Most of it is the steering of ports, which holds before the failure too (`lumion-steering`). It is no "
        "independent number: the compute time of a step is set from MORPHLUX's epochs (`rack-compute`).",
    ),
    Claim(
        name="lumion-steering",
        system="LUMION",
        says="After the replacement a step is faster if all ports are steered to the ring, than with fixed ports",
        run="failover",
        rows=where(fabric=("photonic", "fixed"), **_FAULT),
        number=ratio("step_time_after_s", _FIXED, _PHOTONIC),
        source="limit",
        expected=1.0,
        tolerance=Tolerance(side="least"),
        unit="x",
    ),
    Claim(
        name="lumion-splice",
        system="LUMION",
        says="Splicing in the spare makes a step faster than reaching it over the links of others",
        run="failover",
        rows=where(fabric=("fixed", "e1"), **_FAULT),
        number=ratio("step_time_after_s", _E1, _FIXED),
        source="limit",
        expected=1.0,
        tolerance=Tolerance(side="least"),
        unit="x",
    ),
    Claim(
        name="lumion-sums",
        system="LUMION",
        says="A job that lost a chip has, after every step, the sums of a job without a failure, so that no step was "
        "left out or done twice; the share of such jobs is shown",
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
        "Steering both ports of a host to its peer makes an all-reduce faster",
        f"a second port doubles the bandwidth of a host on the testbed too ({_IPERF3:g}x by iperf3), and of its "
        f"all-reduce leaves {_ALL_REDUCE / _IPERF3:.0%}; ours keeps 97 %.",
    ),
    _gain(
        "morphlux-epoch",
        "epoch",
        "Steering both ports of a host to its peer makes an epoch of fine-tuning faster, at batch 8",
        "no gain of the all-reduce explains the authors' epochs: by arithmetic, with a port's full rate, it is "
        f"{_in_words(IMPLIED_GAINS)}, the last more than two ports can give. At batches 2 and 4 the epoch is "
        f"{_EPOCHS[2]:g} and {_EPOCHS[4]:g} times faster there.",
    ),
    Claim(
        name="morphlux-outage",
        system="MORPHLUX",
        says="From a host's death to the end of the first step after it, what is no start-up stage takes as long as on "
        "the testbed",
        run="server-fabric",
        rows=where(fabric="photonic", tenant="A"),
        number=in_repeats(lambda rows: rows[0]["outage_s"] - _GIVEN_S),
        source="morphlux-timeline",
        expected=published("morphlux-timeline").values["first step"] - _GIVEN_S,
        tolerance=Tolerance(share=0.1),
        unit="s",
        note="The stages, 15.5 s together, are given: they are set to the differences of the timeline, and left out on "
        "both sides.",
        why=f"the parts do not correspond. {_FIRST_STEP_S:.1f} s of the testbed's are its first iteration, where ours "
        "takes 3 s, as any step; and 4 s of ours are the copy of the checkpoint, which the timeline of the testbed "
        "does not name (row `kill 1` of the kept run).",
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
        why="it depends on the sizes of slices, which are those of Google's TPU v4 in this figure, and we have not "
        "read them. The mixes that we have give 0.50 (`rack-even`), 0.60 (`half-rack`, this one), 0.65 (`small-even`), "
        "0.67 (`servers`) and 0.79 (`small`): `railyard run allocation --study fragmentation --mix NAME`.",
    ),
    Claim(
        name="morphlux-failed",
        system="MORPHLUX",
        says="Of the requests for 32 chips three quarters fail on contiguous slices, for the mix of its authors "
        "with 30 % free",
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
        says="No request for 32 chips fails with slices made of fragments, for the mix of its authors with 30 % free",
        run="allocation",
        rows=where(**_REQUESTS, system="morphlux"),
        number=value("failed_share"),
        source="morphlux-failed",
        expected=published("morphlux-failed").values["morphlux"],
        tolerance=Tolerance(points=0.01),
        why="a slice lies within a rack, and few racks have 32 free chips. Asked of every rack for its own chips none "
        "fails, but then a quarter fails on contiguous slices, and not three quarters; only if all racks were one pool "
        "would both come out (`railyard run allocation --study protocols`). The zero is derived: the figure counts "
        '"the fraction of new allocations that require fragmented allocator".',
    ),
    Claim(
        name="morphlux-served",
        system="MORPHLUX",
        says="Of requests for 16 and 32 chips slices made of fragments serve 1.2 times as many as contiguous ones",
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
