"""All readers of what others wrote, with strategies of their inputs and the errors that they document."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from captures import TALK, capture
from hypothesis import strategies as st
from pytorch_traces import RECORD

from experiments.options import field_options
from experiments.propius.data import messages
from experiments.registry import ENTRIES, find
from railyard.errors import AgentError, CircuitError, ConfigError, MachineError, VerifyError
from tests.fuzz import grammars, readers
from tests.fuzz.strategies import TEXTS, as_yaml, changed, changed_trees, json_bytes, json_lines
from topos.racks import MorphluxTopo, RackTopo
from topos.rails import RailTopo
from workloads.agent.transport.message import Header
from workloads.formats.layer_text import KINDS, PARALLELISMS
from workloads.formats.msccl_algo import SENDS
from workloads.rank.flows import Flow
from workloads.stragglers.injection import INJECTIONS


@dataclass(frozen=True)
class Reader:
    """A reader (``name``, ``read``) with its ``seeds``, valid inputs that are changed, and the errors it may raise.

    ``made`` makes inputs by the grammar of the format; half of the inputs then come from it, and are changed too.
    ``words`` are put into inputs as they are. A ``slow`` reader gets a fifth of the inputs.
    """

    name: str
    read: Callable[[bytes, Path], object]
    seeds: Sequence[bytes]
    allowed: tuple[type[Exception], ...] = (ConfigError,)
    words: Sequence[bytes] = ()
    made: st.SearchStrategy[bytes] | None = None
    slow: bool = False

    @property
    def inputs(self) -> st.SearchStrategy[bytes]:
        """Changed seeds, and inputs by the grammar."""
        inputs = st.sampled_from(self.seeds)
        return changed(inputs if self.made is None else inputs | self.made, self.seeds, self.words)


def _encoded(words: Sequence[str], end: str = "") -> list[bytes]:
    return [f"{word}{end}".encode() for word in words]


def _json(name: str, read: Callable[[bytes, Path], object], *trees: object,
          allowed: type[Exception] = ConfigError) -> Reader:  # fmt: skip
    """A reader of one of ``trees`` as JSON, whose tree is changed too."""
    return Reader(name, read, list(map(json_bytes, trees)), (allowed,), made=changed_trees(trees).map(json_bytes))


_CONFIG = (ConfigError, VerifyError)
_SHORT = (ValueError, struct.error)
_PLOTTED = (ConfigError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What ``railyard plot`` reports as a folder that it does not understand."""
_KINDS = {entry.name: find(entry.name) for entry in ENTRIES}
_TREES = {name: grammars.default_tree(kind) for name, kind in _KINDS.items()}
_TREES["torch"] |= {"record": "record.yaml"}  # the only experiment that has no job by default
_OPTIONS = {name: [option.names[0] for option in field_options(kind.Settings)] for name, kind in _KINDS.items()}
_VALUES = (*TEXTS, "ring", "all_to_all", "stragglar", "smoke", "1M", "1/250", "hierarchical", "valiant", "tree")
_SHOWN = ["--algorithm", "--op", "--ranks", "--straggler", "--gpus-per-server", "--size", "--json", "--xml"]
_LAYER_WORDS = ("all_gpus: ", "checkpoints: ", "checkpoint_initiates: ", "pp: ", "ep: ", "DLRM_LAST_BOTTOM_LAYER: ")
_MSCCL_WORDS = _encoded((*SENDS, "r", "rrc", "re", "cpy", "nop", "scratch", "i", "o", "s", 'cnt="2097151"'))
_RAILS = ["\n".join(lines) for lines in (grammars.RAILS[:5], (*grammars.RAILS[:4], *grammars.RAILS[7:13]))]
_RACKS = ["torus=4x4\ntenants=2x2@0,0/1x1@2,0+1x1@3,0", "fabric=electrical-torus\nreserve=1x1@2,3/1x1@3,3"]
_MORPHLUX = (*grammars.RACKS[3:], "tenants=2x1@0,0")
_FOLDER = grammars.folder_parts(_KINDS["collective"])
_CONFIGS = grammars.agent_configs()

TABLE = {reader.name: reader for reader in (
    Reader("layers", readers.layers, grammars.LAYERS, made=grammars.layer_text(),
           words=_encoded((*_LAYER_WORDS, *PARALLELISMS, *KINDS))),
    Reader("msccl", partial(readers.inspected, "algorithm.xml"), grammars.MSCCL, _CONFIG, _MSCCL_WORDS),
    Reader("msccl-written", readers.msccl_written, grammars.MSCCL, _CONFIG, _MSCCL_WORDS),
    Reader("chakra", readers.chakra, grammars.TRACES, made=grammars.traces(),
           words=(grammars.NEXT_RANK, b"comm_group", b"comm_size", b"pg_name")),
    Reader("pcap", partial(readers.inspected, "talk.pcap"), [capture(TALK), capture(TALK, ng=True)]),
    Reader("any-file", partial(readers.inspected, "workload"), [*grammars.LAYERS[:2], *grammars.MSCCL[:1]], _CONFIG),
    Reader("recipe", partial(readers.inspected, "recipe.yaml"), list(map(json_bytes, grammars.RECIPES)),
           made=as_yaml(changed_trees(grammars.RECIPES, 3)), slow=True),
    Reader("record", partial(readers.inspected, "record.yaml"), [RECORD.encode()], _CONFIG, slow=True,
           words=_encoded(("root 1", "uneven uneven0", "as x", "all_to_all", "*2/1", "0-3/2", "1e9+"))),
    Reader("injection", readers.injection, _encoded([text for text in INJECTIONS.values() if "replay" not in text])),
    Reader("gaps", readers.gaps, [b'{"gaps_ms": [1, 2.5, 7]}', b"1\n2.5\n# three\n7\n"]),
    Reader("timetable", readers.timetable, [b"2s fail rail0:3; step 3.5 set g0-r0 rate=5Mbps delay=2ms loss=1%",
                                            b"1s flap rail0:1 every=1ms for=2ms\n2s connect rail0 1-3"]),
    Reader("link-trace", readers.trace, [b"time_s,rate_mbps\n0,50\n0.01,20.5\n",
                                         b"time_s,delay_ms,loss_percent\n0,1,0\n"]),
    Reader("demand", readers.demand, [b"0,1,2\n3,0,4\n5,6,0\n"]),

    Reader("topology-rails", partial(readers.topology, RailTopo, RailTopo.build),
           _encoded((*_RAILS, "servers=4\nports=2\nmesh=7x3")), words=_encoded(grammars.RAILS, "\n"),
           made=grammars.topology_options(grammars.RAILS)),
    Reader("topology-racks", partial(readers.topology, RackTopo, RackTopo.build), _encoded(_RACKS),
           words=_encoded(grammars.RACKS, "\n"), made=grammars.topology_options(grammars.RACKS)),
    Reader("topology-morphlux", partial(readers.topology, MorphluxTopo, MorphluxTopo.build),
           [b"fabric=photonic\ntenants=2x1@0,0"], words=_encoded(_MORPHLUX, "\n"),
           made=grammars.topology_options(_MORPHLUX)),
    Reader("mesh-gates", readers.mesh_gates, [bytes(35) + b"\n\1\2\3\4", b"\1" * 35 + b"\n\1\2\3\4"],
           (ConfigError, CircuitError)),
    Reader("predict", readers.prediction, [f"experiment: {name}\n{text}".encode()
                                           for name, text in grammars.PREDICTED.items()],
           _CONFIG, made=grammars.prediction(), slow=True),
    *(Reader(f"yaml-{name}", partial(readers.experiment_file, name), [json_bytes(tree)], _CONFIG,
             [b"&a ", b"*a", b"<<: ", b"? ", b"- ", b": ", b"|\n", b">\n"],
             as_yaml(grammars.experiment_tree(tree)), slow=True) for name, tree in _TREES.items()),
    Reader("command-line", readers.command_line, [f"{name}\n{option}\n1".encode()
                                                  for name, known in _OPTIONS.items() for option in known[:3]],
           _CONFIG, _encoded([option for known in _OPTIONS.values() for option in known]),
           grammars.command_line(_OPTIONS, _VALUES), slow=True),
    Reader("show", readers.show, [b"--algorithm\nring\n--ranks\n8", b"smoke\n--json",
                                  b"--algorithm\nstragglar\n--ranks\n8\n--straggler\n2"],
           _CONFIG, _encoded(_SHOWN), grammars.command_line({"": _SHOWN}, _VALUES), slow=True),
    _json("calibration", readers.calibration, grammars.CALIBRATION, allowed=MachineError),

    Reader("plot", readers.plot, [grammars.folder_bytes(_FOLDER)], _PLOTTED, [grammars.NEXT_FILE],
           grammars.changed_folder(_FOLDER)),
    _json("manifest", partial(readers.results_file, 0), grammars.MANIFEST),
    _json("rows", partial(readers.results_file, 1), grammars.ROWS),
    Reader("events", partial(readers.results_file, 2), [json_lines(grammars.EVENTS)],
           made=changed_trees([grammars.EVENTS]).map(json_lines)),

    _json("job-channel", readers.job_channel, *grammars.REQUESTS),
    _json("rest-body", readers.rest_body, *grammars.BODIES),
    Reader("rest-chunks", readers.rest_chunks, [b"5\r\nhello\r\n0\r\n\r\n"],
           words=[b"\r\n", b"0\r\n\r\n", b"ffffffff"]),
    _json("plan", readers.plan, grammars.PLAN),
    _json("edge-requests", readers.edge_requests, *grammars.EDGE_REQUESTS),
    Reader("rest-call", readers.rest_call, grammars.CALLS, (), made=grammars.rest_call(),
           words=_encoded([*(f"{header}\r\n" for header in grammars.HEADERS),
                           *(f"{verb} " for verb in grammars.VERBS), *grammars.PATHS])),
    Reader("job-session", readers.job_session, [json_lines(grammars.REQUESTS)], (), made=grammars.session),

    Reader("agent-header", readers.agent_header, [Header("data", Flow(1, 2, 3, False), 4, 100).pack(),
                                                  Header("ready", Flow(1, 2, 3, True), 4, 100).pack()],
           (VerifyError,)),
    Reader("checkpoint", readers.checkpoint, [grammars.saved_checkpoint()], (AgentError,), made=grammars.checkpoint()),
    Reader("edge-frame", readers.edge_frame, [grammars.edge_frame({"op": "get", "job": 0, "round": 1}),
                                              grammars.edge_frame({"op": "push", "job": 0, "round": 1}, b"12")],
           (messages.EdgeError,), made=grammars.frames),
    Reader("edge-journal", readers.edge_journal, [json_lines(grammars.RECORDS)], (MachineError,),
           made=changed_trees([grammars.RECORDS]).map(json_lines)),
    _json("agent-configs", readers.agent_configs, _CONFIGS),
    Reader("answers", readers.answers, [b'{"id":1,"ok":true}\n{"id":2,"ok":false,"error":"x"}\n'], (ValueError,)),

    Reader("openflow-replies", readers.openflow_replies, grammars.REPLIES, _SHORT, [grammars.REPLIES[0][:8]]),
    Reader("openflow-requests", readers.openflow_requests,
           [grammars.FLOW_MOD, grammars.BUNDLE, grammars.FLOW_MOD_10, grammars.AGGREGATE], _SHORT),
    Reader("openflow-match", readers.openflow_match, [grammars.MATCH, bytes(40), bytes(88), grammars.INSTRUCTIONS],
           _SHORT),
    Reader("openflow-counts", readers.openflow_counts,
           [grammars.AGGREGATE + grammars.FLOW_MOD_10, grammars.FLOW_MOD + grammars.REPLIES[1], *grammars.COUNTED],
           _SHORT),
    Reader("netlink", readers.netlink, grammars.NETLINK, (MachineError, struct.error, KeyError)),
    Reader("spool", readers.spool, [grammars.SPOOL], (IndexError,)),
    Reader("ovsdb", readers.ovsdb, grammars.OVSDB, (MachineError,), [b'"id":1', b'"result":', b'"error":', b"null"]),
)}  # fmt: skip
"""All readers by name."""
