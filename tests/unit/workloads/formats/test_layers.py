from __future__ import annotations

import pytest
from checkout import CASES

from railyard.errors import ConfigError
from workloads.check import check
from workloads.formats.layer_text import LayerFile, parse_layers
from workloads.formats.layers import layout_of, make_plan, read_layers, unit_of
from workloads.formats.reading import read_unit
from workloads.program import Collective, Compute, Program
from workloads.rank.executor import all_dependencies

SIMAI = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 1 all_gpus: 8 checkpoints: 0"
)


def text(header: str, *layers: str, count: int | None = None) -> str:
    return "\n".join([header, str(len(layers) if count is None else count), *layers]) + "\n"


def parsed(header: str, *layers: str) -> LayerFile:
    return parse_layers(text(header, *layers), "x.txt")


def program(header: str, *layers: str, ranks: int | None = 4, unit: str | None = "s", mp: int | None = None) -> Program:
    file = parsed(header, *layers)
    made = make_plan(file, unit_of(file, unit), ranks, mp).program()
    check(made)
    return made


def shown(made: Program, rank: int = 0) -> list[str]:
    """What one rank does: name, and for a collective kind, members and bytes."""
    found = []
    for op in made.operations[rank]:
        if isinstance(op, Collective):
            members = "".join(map(str, made.groups[op.group].members))
            found.append(f"{op.name} {op.kind} {members} {op.bytes}")
        elif isinstance(op, Compute):
            found.append(f"{op.name} {op.seconds:g}s")
    return found


def after(made: Program, name: str, rank: int = 0) -> set[str]:
    """The names of everything that ``name`` waits for, directly or not, without the order of computes."""
    ops = made.operations[rank]
    wanted, found = [op for op in ops if op.name == name][-1:], set()
    while wanted:
        for dep in wanted.pop().deps:
            found.add(ops[dep].name)
            wanted.append(ops[dep])
    return found


A = "a -1 1 NONE 0 2 NONE 0 3 ALLREDUCE 40 4"
B = "b\t-1\t10  NONE\t 0\t20\tNONE 0\t30\tALLREDUCE\t80\t5"


def test_data_parallel_order() -> None:
    made = program("DATA", A, B)
    assert shown(made) == [
        "a.forward 1s",
        "b.forward 10s",
        "b.weight-grad 30s",
        "b.weight-grad all_reduce 0123 80",
        "b.input-grad 20s",
        "a.weight-grad 3s",
        "a.weight-grad all_reduce 0123 40",
        "b.update 5s",
        "a.update 4s",
    ]
    assert "b.weight-grad" in after(made, "b.update")
    needs = all_dependencies(made.operations[0])
    assert 3 not in needs[4]  # the collective of the weights holds up no compute
    assert [shown(made, rank) for rank in range(4)] == [shown(made)] * 4


def test_a_collective_without_a_group_is_not_sent_and_noted() -> None:
    plan = make_plan(parsed("DATA", "a -1 1 ALLREDUCE 40 1 NONE 0 1 ALLREDUCE 80 1"), None, 4)
    assert [step.bytes for step in plan.steps if isinstance(step, Collective)] == [80]
    assert any("DATA sends only" in note for note in plan.notes)


def test_model_parallel_order() -> None:
    """The input gradient's collective runs beside the weight gradient, and the next layer waits for it."""
    layer = "-1 1 ALLGATHER 40 2 REDUCESCATTER 80 3 ALLREDUCE 7 9"
    made = program("MODEL", f"a {layer}", f"b {layer}")
    names = [line.split(" ")[0] for line in shown(made)]
    assert names == [
        *("a.forward", "a.forward", "a.update", "b.forward", "b.forward", "b.update"),
        *("b.input-grad", "b.input-grad", "b.weight-grad", "b.update", "a.input-grad", "a.weight-grad"),
    ]
    ops = made.operations[0]
    assert isinstance(ops[1], Collective)
    assert ops[1].bytes == 160  # ASTRA-sim counts what one rank contributes
    assert ops[8].deps == (6,)
    assert set(ops[10].deps) == {8, 9}


def test_transformer_order_and_groups() -> None:
    """Model-parallel neighbours; a rank waits for the collective of an input gradient at once."""
    layer = "a -1 1 ALLREDUCE 40 2 ALLREDUCE 80 3 ALLREDUCE 120 0"
    made = program("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", layer)
    assert shown(made, 3) == [
        "a.forward 1s",
        "a.forward all_reduce 23 40",
        "a.input-grad 2s",
        "a.input-grad all_reduce 23 80",
        "a.weight-grad 3s",
        "a.weight-grad all_reduce 13 120",
    ]
    assert made.operations[0][4].deps == (3,)


def test_hybrids_with_first_dimensions() -> None:
    layer = "a -1 0 ALLREDUCE 40 0 NONE 0 0 ALLREDUCE 120 0"
    assert shown(program("HYBRID_DATA_MODEL", layer, ranks=6, mp=3), 4) == [
        "a.forward all_reduce 345 40",
        "a.weight-grad all_reduce 14 120",
    ]
    assert shown(program("HYBRID_MODEL_DATA", layer, ranks=6, mp=3), 4) == [
        "a.forward all_reduce 024 40",
        "a.weight-grad all_reduce 45 120",
    ]


def test_pipeline_stages_with_data_parallel_neighbours() -> None:
    """12 ranks: two stages, each of 3 model-parallel by 2 data-parallel ranks; every group lies in one stage."""
    header = "HYBRID_MODEL_DATA model_parallel_NPU_group: 3 pp: 2 all_gpus: 12"
    layout, _ = layout_of(parsed(header, "a -1 0 ALLREDUCE 40 0 NONE 0 0 ALLREDUCE 120 0"), None)
    assert [group.members for group in layout.groups("data")] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]
    assert [group.members for group in layout.groups("model")] == [(0, 2, 4), (1, 3, 5), (6, 8, 10), (7, 9, 11)]


def test_experts() -> None:
    """8 ranks: model-parallel pairs, 4 data-parallel ranks each, of which 2 share experts."""
    made = program(
        SIMAI,
        "moe -1 1 ALLTOALL_EP 40 1 ALLTOALL_EP 80 1 ALLGATHER_DP_EP 160 1",
        "b -1 1 ALLGATHER 12 1 REDUCESCATTER 0 1 ALLREDUCE 24 1",
        ranks=None,
    )
    assert [line for line in shown(made, 5) if not line.endswith("s")] == [
        "moe.forward all_to_all 57 40",
        "b.forward all_gather 45 12",
        "b.weight-grad all_reduce 1357 24",
        "moe.input-grad all_to_all 57 80",
        "moe.weight-grad all_gather 15 160",
    ]
    assert {g.dimension for g in made.groups.values()} == {"tp", "dp", "ep"}


def test_pipeline_stages_are_alike() -> None:
    header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 pp: 2 all_gpus: 8 pp_comm 4096.0"
    layer = "a -1 1 ALLREDUCE 8 1 NONE 0 1 ALLREDUCE 16 1"
    file = parsed(header, layer)
    layout, notes = layout_of(file, None)
    assert [layout.members("data", rank) for rank in (0, 3, 4, 7)] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert "2 alike" in notes[0]
    layout, notes = layout_of(file, 6)
    assert layout.members("data", 1) == (1, 3, 5)
    assert "one of 2" in notes[0]
    assert file.header["pp_comm"] == 4096


def test_dlrm_exchanges_beside_the_bottom_layers() -> None:
    made = program(
        "HYBRID_DLRM 1",
        "emb -1 1 ALLTOALL 64 1 ALLTOALL 64 1 NONE 0 0",
        "bot -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 0",
        "top -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 0",
    )
    ops = {(op.name, type(op).__name__): op for op in made.operations[0]}
    exchange = ops["emb.forward", "Collective"].id
    assert ops["bot.forward", "Compute"].deps == (0,)
    assert exchange in ops["top.forward", "Compute"].deps
    back = ops["emb.input-grad", "Collective"]
    assert back.deps == (ops["top.input-grad", "Compute"].id,)
    assert back.id in ops["emb.weight-grad", "Compute"].deps
    assert back.id not in ops["bot.weight-grad", "Compute"].deps
    assert parsed("HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 0", A).header == {"DLRM_LAST_BOTTOM_LAYER": 0}


def test_micro_sends_and_does_nothing_else() -> None:
    made = program("MICRO", A, B, unit=None)
    assert shown(made) == ["a.weight-grad all_reduce 0123 40", "b.weight-grad all_reduce 0123 80"]
    assert made.operations[0][1].deps == (0,)


def test_checkpoints_repeat_the_forward_pass() -> None:
    layers = [f"{name} -1 1 NONE 0 2 NONE 0 3 NONE 0 0" for name in "abc"]
    header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 checkpoints: 2 0 1 checkpoint_initiates: 1 2"
    assert [line.split(".")[0] + line[2] for line in shown(program(header, *layers))] == [
        *("af", "bf", "cf", "bf", "ci", "cw", "bi", "bw", "ai", "aw")
    ]
    with pytest.raises(ConfigError, match="there is no checkpoint at or before"):
        program(header.replace("2 0 1 checkpoint_initiates: 1 2", "1 2 checkpoint_initiates: 1 1"), *layers)


def test_customized_layers_have_a_parallelism_of_their_own() -> None:
    made = program(
        "HYBRID_CUSTOMIZED",
        "a -1 0 ALLREDUCE 40 0 NONE 0 0 ALLREDUCE 80 0 DATA",
        "b -1 0 ALLREDUCE 40 0 NONE 0 0 ALLREDUCE 80 0 HYBRID_TRANSFORMER",
        mp=2,
    )
    assert shown(made, 0) == [
        "b.forward all_reduce 01 40",
        "b.weight-grad all_reduce 02 80",
        "a.weight-grad all_reduce 0123 80",
    ]


def test_a_group_of_one_sends_nothing() -> None:
    plan = make_plan(parsed("HYBRID_TRANSFORMER model_parallel_NPU_group: 4", A), read_unit("ns"), 4)
    assert not any(isinstance(step, Collective) for step in plan.steps)
    assert any("data groups are not sent" in note for note in plan.notes)


def test_compute_times_need_a_unit() -> None:
    assert program("DATA", A, unit="cycles:2").operations[0][0] == Compute(0, "a.forward", 0.5e-9)
    assert program("DATA", A, unit="ms").operations[0][0] == Compute(0, "a.forward", 1e-3)
    assert not any(isinstance(op, Compute) for op in program("DATA", A, unit="ignore").operations[0])


def test_placeholders_need_none() -> None:
    assert not any(isinstance(op, Compute) for op in program("DATA", "a -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 4 100",
                                                             unit=None).operations[0])  # fmt: skip


def test_windows_lines_and_trailing_tabs() -> None:
    content = text("HYBRID_DLRM\t4\t\t\t", *[A] * 6).replace("\n", "\t\t\r\n")
    assert len(parse_layers(content, "x.txt").layers) == 6


class TestRealFiles:
    @pytest.mark.parametrize(
        ("name", "layers", "sent"),
        [
            ("aicb/G175B-M1-C03_GPT175B_megatron_tp8_pp1_mbs1_A100.txt", 33,
             {"all_reduce", "reduce_scatter", "all_gather"}),
            ("aicb/L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt", 76,
             {"broadcast", "all_reduce", "reduce_scatter", "all_gather"}),
            ("aicb/simai_all_reduce.txt", 19, {"all_reduce"}),
            ("astra-sim/text/DLRM_HybridParallel.txt", 8, {"all_to_all", "all_reduce"}),
            ("astra-sim/text/Resnet50_DataParallel.txt", 54, {"all_reduce"}),
            ("astra-sim/text/microAllReduce.txt", 1, {"all_reduce"}),
        ],
    )  # fmt: skip
    def test_they_are_read_and_proved(self, name: str, layers: int, sent: set[str]) -> None:
        content = (CASES / name).read_bytes().decode()
        assert len(parse_layers(content, name).layers) == layers
        made = read_layers(CASES / name, compute_unit="ns", ranks=16).program
        check(made)
        assert {op.kind for op in made.communications(5) if isinstance(op, Collective)} == sent

    def test_resnet_sends_its_gradients(self) -> None:
        """Every weight once: the bytes of ResNet-50's all-reduces."""
        path = CASES / "astra-sim/text/Resnet50_DataParallel.txt"
        made = read_layers(path, compute_unit="cycles:1", ranks=4).program
        column = [int(line.split()[10]) for line in path.read_text().splitlines()[2:] if line.strip()]
        assert sum(op.bytes for op in made.communications(0)) == sum(column)
        assert sum(op.seconds for op in made.operations[0] if isinstance(op, Compute)) == pytest.approx(
            sum(
                sum(map(int, (w[2], w[8], w[11], w[5] if n else 0)))
                for n, line in enumerate(path.read_text().splitlines()[2:])
                if (w := line.split())
            )
            / 1e9
        )
