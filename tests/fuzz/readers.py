"""Readers as functions of the bytes of one input, and of an empty folder for those that read files."""

from __future__ import annotations

import asyncio
import atexit
import json
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from functools import lru_cache, partial
from io import BytesIO, StringIO
from pathlib import Path
from struct import error as StructError
from typing import Any

from core_world import World
from edge.loopback import loopback_run
from fabric_plans import pip_plan
from pytorch_traces import RECORD

from commands import show as show_command
from commands.run import experiment_of, file_values, kind_of, mode_of, parser_of
from controllers.mesh.switch import PipSwitch
from controllers.northbound import bodies, http_server, rest
from controllers.northbound.messages import read_request
from experiments.collectives.all_to_all.experiment import read_demand
from experiments.experiment import Experiment
from experiments.propius.control.servers import ControlServer
from experiments.propius.data import messages as edge
from experiments.propius.data.server_process import Journal, LeafActor, RootActor
from experiments.propius.run import Actor, EventFile
from experiments.redraw import read_folder, trace_json
from experiments.registry import find
from experiments.report import show as show_report
from experiments.settings import validated
from experiments.timetable import check, parse
from measure.live import packets
from measure.live.calibration import load_calibration
from measure.live.counters import link_counters
from measure.results.folder import MANIFEST
from measure.results.results import SUMMARY, Results
from railyard.errors import ConfigError
from railyard.point_folder import EVENTS, point_folder
from railyard.protocol import Decoder
from railyard.validation import from_plain
from tests.fuzz import grammars
from topos.describe import plan as planned
from topos.kernel.fastpath import carrier, openflow, statistics
from topos.kernel.fastpath.rules import Counts, PortCounts
from topos.kernel.fastpath.tables import FlowTables, SimpleFlow
from topos.kernel.netlink import messages
from topos.kernel.ovsdb import Ovsdb
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.agent.checkpoint import Store
from workloads.agent.config import configs_from_json
from workloads.agent.transport.message import HEADER_BYTES, Header
from workloads.catalog import load_workload
from workloads.formats.msccl_reader import parse_msccl
from workloads.formats.msccl_writer import write_msccl
from workloads.inspection import inspect_file
from workloads.stragglers.injection import parse_injection

# ---- workloads of other tools --------------------------------------------------------------------------------------


def inspected(name: str, data: bytes, folder: Path) -> None:
    (folder / name).write_bytes(data)
    inspect_file(str(folder / name))


def layers(data: bytes, folder: Path) -> None:
    inspected("layers.txt", data, folder)
    load_workload(str(folder / "layers.txt"), compute_unit="ns", ranks=None if b"all_gpus" in data else 8)


def msccl_written(data: bytes, folder: Path) -> None:
    """What the reader takes the writer writes, and the reader takes that."""
    made = parse_msccl(data.decode("utf-8", "replace"), "algorithm.xml")
    again = parse_msccl(write_msccl(made), "again.xml")
    assert (again.kind, again.n, again.chunks) == (made.kind, made.n, made.chunks)


def chakra(data: bytes, folder: Path) -> None:
    for rank, trace in enumerate(data.split(grammars.NEXT_RANK)):
        (folder / f"trace.{rank}.et").write_bytes(trace)
    inspect_file(str(folder / "trace"))


def injection(data: bytes, folder: Path) -> None:
    parse_injection(data.decode("utf-8", "surrogateescape")).delays(8, 10, 3, 1)


def gaps(data: bytes, folder: Path) -> None:
    path = folder / ("gaps.json" if data[:1] == b"{" else "gaps.txt")
    path.write_bytes(data)
    parse_injection(f"replay:{path}{'' if data[:1] == b'{' else ',unit=ms'}").delays(8, 10, 3, 1)


def timetable(data: bytes, folder: Path) -> None:
    check(parse(data.decode(errors="replace")), planned(RailTopo(servers=2, gpus=2, fabric="ocs")))


def trace(data: bytes, folder: Path) -> None:
    (folder / "trace.csv").write_bytes(data)
    parse(f"1s replay g0-r0 {folder / 'trace.csv'}")


def demand(data: bytes, folder: Path) -> None:
    (folder / "demand.csv").write_bytes(data)
    read_demand(str(folder / "demand.csv"), 3, 4096.0, 1)


# ---- what people type ----------------------------------------------------------------------------------------------

_MOST_POINTS, _MOST_RANKS, _MOST_STEPS = 4, 16, 4
_MOST_SHOWN = 12
"""Words of a command line that shows files, each of which takes its time."""


def topology(make: Callable[..., object], options: Callable[..., None], data: bytes, folder: Path) -> None:
    """The options of a topology, a line each, as text from a command line."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    given = dict(line.split("=", 1) for line in lines if "=" in line)
    if all(name.isidentifier() and name not in ("self", "opts", "choose_ports") for name in given):
        planned(make(**{name: value for name, value in given.items() if name in options.__annotations__}))


def mesh_gates(data: bytes, folder: Path) -> None:
    """States of the gates of a mesh, a bit each, then blocked ports."""
    bits, _, blocked = data.partition(b"\n")
    PipSwitch(pip_plan(4).switches[0]).with_gates([bool(bit & 1) for bit in bits], list(blocked))


def _checked(kind: type[Experiment[Any]], data: bytes, folder: Path) -> Experiment[Any]:
    (folder / "own.yaml").write_bytes(data)
    (folder / "record.yaml").write_text(RECORD)
    experiment = kind(validated(kind.Settings, file_values(kind, folder / "own.yaml")))
    experiment.check()
    return experiment


def experiment_file(name: str, data: bytes, folder: Path) -> None:
    _checked(find(name), data, folder)


def prediction(data: bytes, folder: Path) -> None:
    """``railyard predict`` of a file of few points, ranks and steps: others take as long as they are large."""
    named = data.partition(b"experiment: ")[2].partition(b"\n")[0].decode("utf-8", "replace")
    experiment = _checked(find(named if named in grammars.PREDICTED else "collective"), data, folder)
    ranks = getattr(experiment.settings, "ranks", None) or 0
    steps = max(getattr(experiment.settings, name, 0) for name in ("iterations", "steps"))
    most = max(ranks) if isinstance(ranks, tuple) and ranks else ranks if isinstance(ranks, int) else 0
    if (experiment.points() or 0) <= _MOST_POINTS and most <= _MOST_RANKS and steps <= _MOST_STEPS:
        for row in experiment.predict():
            row.to_json()


def _words(data: bytes) -> list[str]:
    return [line.decode("utf-8", "surrogateescape") for line in data.split(b"\n")]


def _without_exit(read: Callable[[], object]) -> None:
    try:
        read()
    except SystemExit as end:  # --help
        assert not end.code, f"ended with status {end.code}"


def command_line(data: bytes, folder: Path) -> None:
    """A command line of ``railyard run``, up to the experiment that it describes."""
    kind, rest_of_line = kind_of(_words(data))
    with redirect_stdout(StringIO()):
        _without_exit(lambda: experiment_of(kind, parser_of(kind, mode_of(kind, rest_of_line)).read(rest_of_line)))


def show(data: bytes, folder: Path) -> None:
    with redirect_stdout(StringIO()):
        _without_exit(lambda: show_command.main(_words(data)[:_MOST_SHOWN]))


def calibration(data: bytes, folder: Path) -> None:
    (folder / "calibration.json").write_bytes(data)
    load_calibration(folder / "calibration.json")


# ---- what a run has left -------------------------------------------------------------------------------------------


def results_folder(data: bytes, folder: Path) -> None:
    """Manifest, rows and events, which are three parts of ``data``."""
    parts = (*data.split(grammars.NEXT_FILE), b"", b"")
    events = point_folder(folder, 0) / EVENTS
    events.parent.mkdir(parents=True, exist_ok=True)
    events.write_bytes(parts[2])
    for name, content in ((MANIFEST, parts[0] or b"{}"), (SUMMARY, parts[1] or b"[]")):
        (folder / name).write_bytes(content)
    results = Results.open(folder)
    results.rows()
    results.events()
    _ = results.experiment


def results_file(place: int, data: bytes, folder: Path) -> None:
    """One file of a results folder, whose others are as they should be."""
    parts = grammars.folder_bytes([grammars.MANIFEST, grammars.ROWS, grammars.EVENTS]).split(grammars.NEXT_FILE)
    parts[place] = data.replace(grammars.NEXT_FILE, b"")
    results_folder(grammars.NEXT_FILE.join(parts), folder)


def plot(data: bytes, folder: Path) -> None:
    """The trace and the tables of a results folder."""
    results_folder(data, folder)
    recorded = read_folder(Results.open(folder))
    kind = find(Results.open(folder).experiment)
    settings = recorded.manifest["experiment"]
    if kind.packets:
        trace_json(recorded.events, recorded.scale)
    with redirect_stdout(StringIO()):
        show_report(kind.report(), recorded.rows, settings, packets=kind.packets, notes=recorded.notes)


# ---- what the controller takes -------------------------------------------------------------------------------------

_MOST_LINES = 200


def job_channel(data: bytes, folder: Path) -> None:
    read_request(data)


def rest_body(data: bytes, folder: Path) -> None:
    """One body, for every resource that takes one; a part of them comes in chunks."""
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data and len(data) % 4 == 0 else data
    body = bodies.read_body(BytesIO(framed), str(len(framed)), None if framed is data else "chunked")
    for read in (bodies.rewire_request, bodies.gates_request, partial(bodies.pairs_request, update="update")):
        with suppress(ConfigError):
            read(body, "rail0")
    bodies.fault_request(body)


def rest_chunks(data: bytes, folder: Path) -> None:
    bodies.read_body(BytesIO(data), None, "chunked")


def plan(data: bytes, folder: Path) -> None:
    from_plain(FabricPlan, data, "a fabric plan")


async def _edge_answers(frame: edge.Frame, folder: Path) -> None:
    """What the processes of an edge run answer to a frame; what waits for something else is given up."""
    run = loopback_run(folder, 4, verify=True)
    actors: list[Actor] = [ControlServer(run, EventFile(folder / "control"))]
    actors += [RootActor(run, EventFile(folder / "root")), LeafActor(run, 0, EventFile(folder / "leaf"))]
    for actor in actors:
        with suppress(edge.EdgeError, asyncio.TimeoutError):
            await asyncio.wait_for(actor.handle(frame), 0.01)
        await actor.end()
        if actor.failed.done():
            actor.failed.result()


def edge_requests(data: bytes, folder: Path) -> None:
    asyncio.run(_edge_answers(edge.Frame(data), folder))


class _AnsweringWorld(World):
    """A controller whose switches answer before a call waits for them."""

    def answered(self, core_call: Any, request: Any, requester: Any) -> None:
        """Execute a request, then let the clock go on until the switches have answered."""
        core_call(request, requester)
        self.clock.advance(120)


@lru_cache(maxsize=1)
def _server() -> http_server.HttpServer:
    """A server, in each process once; its calls come over socket pairs and are served in the calling thread."""
    server, hosts = http_server.listen("127.0.0.1:0")
    world = _AnsweringWorld(pip_plan(4))
    world.join()
    world.core.execute = partial(world.answered, world.core.execute)  # type: ignore[method-assign]
    atexit.register(server.server_close)
    server.set_app(rest.make_app(world.core, grammars.TOKEN, hosts))
    return server


def rest_call(data: bytes, folder: Path) -> None:
    """A call as the bytes of a connection; a status of 5xx other than 501 and 505 is a defect."""
    server = _server()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        server.finish_request(theirs, ("127.0.0.1", 1))
        theirs.close()
        status = ours.recv(1 << 16).partition(b"\r\n")[0].split(b" ")[1:2]
    assert not status or status[0][:1] != b"5" or status[0] in (b"501", b"505"), f"answered with {status[0]!r}"


class _Connection:
    """A connection of the job channel; answers are dropped."""

    trusted = True

    def answer(self, request_id: object, answer: bytes) -> None:
        json.loads(answer)


def job_session(data: bytes, folder: Path) -> None:
    """Lines of one connection of the job channel, to a controller with switches."""
    world = World(pip_plan(4))
    world.join()
    world.clock.advance(1)
    connection = _Connection()
    for line in data.split(b"\n")[:_MOST_LINES]:
        world.core.handle(line, connection)
        world.clock.advance(0.1)
    world.clock.advance(120)
    world.core.closed(connection)


# ---- what processes of a run tell each other -----------------------------------------------------------------------

_MOST_PAYLOAD = 1 << 20


def agent_header(data: bytes, folder: Path) -> None:
    if len(data) >= HEADER_BYTES:
        assert Header.unpack(data[:HEADER_BYTES]).pack() == data[:HEADER_BYTES]


def checkpoint(data: bytes, folder: Path) -> None:
    store = Store(folder, grammars.JOB)
    store.path(3).write_bytes(data)
    store.steps()
    store.load(3)


def edge_frame(data: bytes, folder: Path) -> None:
    """A frame of edge learning, as an endpoint receives it."""
    head, rest_of_frame = data[: edge.HEADER.size], data[edge.HEADER.size :]
    if len(head) < edge.HEADER.size:
        return
    fields, payload = edge.lengths(head, _MOST_PAYLOAD)
    frame = edge.Frame(rest_of_frame[:fields], rest_of_frame[fields : fields + payload])
    asyncio.run(_edge_answers(frame, folder))
    _ = frame.fields


def edge_journal(data: bytes, folder: Path) -> None:
    (folder / "records.log").write_bytes(data)
    (folder / "0.update").write_bytes(b"1234")
    journal = Journal(folder)
    try:
        journal.read()
    finally:
        journal.close()


def agent_configs(data: bytes, folder: Path) -> None:
    configs_from_json(data)


def answers(data: bytes, folder: Path) -> None:
    """Answers of the controller as an agent receives them, in two pieces."""
    decoder = Decoder()
    for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
        deque(decoder.feed(piece), 0)


# ---- messages of switches, of ovsdb-server and of the kernel -------------------------------------------------------


def openflow_replies(data: bytes, folder: Path) -> None:
    """What the monitor of a switch does with the messages of a stream."""
    for message in openflow.split(bytearray(data)):
        if message[1] == openflow.MULTIPART_REPLY and len(message) >= 16:
            kind = int.from_bytes(message[8:10], "big")
            deque(openflow.ports(message) if kind == openflow.MULTIPART_PORTS else openflow.flow_updates(message), 0)
        elif message[1] == openflow.PORT_STATUS:
            openflow.changed_port(message)


def openflow_requests(data: bytes, folder: Path) -> None:
    """What the relay of a client's connection does with its messages."""
    opened = statistics.OpenResets(lambda reset: lambda: None)
    for message in openflow.split(bytearray(data)):
        opened.asked(message)
        opened.refused(message)
        if statistics.statistics_kind(message, reply=False):
            statistics.selection(message)


def openflow_match(data: bytes, folder: Path) -> None:
    for read in (openflow.from_10, openflow.from_11):
        with suppress(StructError):
            read(data, 0)
    with suppress(StructError):
        openflow.read_match(data)
    openflow.read_instructions(data)


class _Flows(FlowTables):
    """A bridge whose ports are known, with one flow."""

    def __init__(self) -> None:
        self.port_names = {"x": "g0-eth0"}

    def counts_of(self, *flow: object) -> Counts:
        return Counts(3, 300)

    def removed_counts(self, *flow: object) -> Counts:
        return Counts(3, 300)

    def reset(self, reset: object) -> Callable[[], object]:
        return lambda: None

    def each(self) -> Iterator[SimpleFlow]:
        yield SimpleFlow(0, 100, 1, b"\2\0\0\0\0\1", 7, 2, Counts(3, 300))

    def port_counts(self) -> dict[int, PortCounts]:
        return {1: PortCounts(Counts(3, 300), Counts(3, 300), Counts())}


def openflow_counts(data: bytes, folder: Path) -> None:
    """What the fast path does with the messages of a client and of its bridge, in turn."""
    rewriting = statistics.Statistics(_Flows())
    for number, message in enumerate(openflow.split(bytearray(data))):
        if number % 2:
            rewriting.asked(message)
        else:
            assert len(rewriting.answered(message)) == len(message)


def netlink(data: bytes, folder: Path) -> None:
    for message in messages(data):
        kind = int.from_bytes(message[4:6], "little")
        if kind == grammars.LINK:
            carrier.has_carrier(message)
        elif kind == grammars.STATISTICS:
            link_counters(message, 28)


def spool(data: bytes, folder: Path) -> None:
    (folder / "spool").write_bytes(data)
    for packet in packets.read_spool(folder / "spool", ("g0-eth0", "g1-eth0")):
        packets.tcp_segment(packet)


def ovsdb(data: bytes, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "db.sock"))
        listener.listen(1)
        client = Ovsdb(folder / "db.sock", timeout_s=5)
        server, _ = listener.accept()
        with server:
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            try:
                client.transact({"op": "comment"})
            finally:
                client.close()
