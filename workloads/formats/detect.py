"""Detects the format of a workload file by its name and first bytes, and reads it as a program.

Chakra traces are a folder, one ``NAME.RANK.et`` or the path ``NAME`` of a set; MSCCL algorithms are XML; layer files
start with their parallelism, packet captures with their magic number. Our own YAML is read by
``workloads.training.recipe``, through ``workloads.catalog``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from railyard.errors import ConfigError
from railyard.reading import open_at_once
from workloads.formats.layer_text import PARALLELISMS
from workloads.formats.layers import read_layers
from workloads.formats.pcap import MAGICS, read_pcap
from workloads.formats.reading import Reading
from workloads.program import Collective, Group, Program

Format = Literal["chakra", "msccl", "layers", "pcap", "yaml"]
FORMATS = (
    "Chakra traces (NAME.0.et, ...), MSCCL XML, layer files of ASTRA-sim or AICB, packet captures (pcap, pcapng), "
    "and our own YAML"
)
DEFAULT_BYTES = 1 << 20
"""Buffer size of an MSCCL algorithm, whose file is for any size."""


def format_of(path: Path) -> Format:
    if os.path.isdir(path) or path.suffix == ".et":
        return "chakra"
    if path.suffix in (".yaml", ".yml"):
        return "yaml"
    if not os.path.exists(path):
        return _trace_set(path)
    if path.suffix == ".xml":
        return "msccl"
    if path.suffix in (".pcap", ".pcapng"):
        return "pcap"
    try:
        with open(path, "rb", opener=open_at_once) as file:
            begins = file.read(4096)
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); name a workload file", source=str(path)) from None
    if begins[:4] in MAGICS:
        return "pcap"
    start = begins.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"<"):
        return "msccl"
    first = start.split(maxsplit=1)[0].decode("ascii", "replace") if start else ""
    if path.suffix == ".txt" or first in PARALLELISMS:
        return "layers"
    raise ConfigError(f"has none of the known formats: {FORMATS}", source=str(path))


def _trace_set(path: Path) -> Format:
    """Handle a path that does not exist, which may be the name of a set of traces."""
    from workloads.formats.chakra import rank_files

    try:
        rank_files(path)
    except ConfigError:
        raise ConfigError(
            "does not exist, as a file, a folder or the name of Chakra traces", source=str(path)
        ) from None
    return "chakra"


def read_workload_file(
    path: Path,
    *,
    compute_unit: str | None = None,
    ranks: int | None = None,
    size: int | None = None,
    model_parallel: int | None = None,
) -> Reading:
    """Read the program in a file that another tool wrote.

    ``compute_unit`` is the unit of its compute times (``workloads.formats.reading``), ``ranks`` and ``model_parallel``
    the numbers of ranks for a layer file, ``size`` the buffer of an MSCCL algorithm in bytes (default 1 MiB). Raises
    ``ConfigError`` naming file and place, or the option that the file needs or cannot have.
    """
    format_ = format_of(path)
    if format_ == "layers":
        _refuse(path, "a layer file", size=size)
        return read_layers(path, compute_unit=compute_unit, ranks=ranks, model_parallel=model_parallel)
    if format_ == "yaml":
        raise ConfigError("is a workload recipe; read it with load_workload", source=str(path))
    if format_ == "chakra":
        from workloads.formats.chakra import read_traces

        _refuse(path, "a Chakra trace", size=size, model_parallel=model_parallel)
        reading = read_traces(path, compute_unit=compute_unit)
    elif format_ == "pcap":
        _refuse(path, "a packet capture", size=size, model_parallel=model_parallel, compute_unit=compute_unit)
        reading = read_pcap(path)
    else:
        _refuse(path, "an MSCCL algorithm", model_parallel=model_parallel, compute_unit=compute_unit)
        reading = _msccl(path, size)
    if ranks is not None and ranks != reading.program.ranks:
        raise ConfigError(
            f"the file is for {reading.program.ranks} ranks and cannot run on {ranks}", key="ranks", source=str(path)
        )
    return reading


def _refuse(path: Path, what: str, **options: object) -> None:
    for key, value in options.items():
        if value is not None:
            raise ConfigError(f"does not apply to {what}", key=key, source=str(path))


def _msccl(path: Path, size: int | None) -> Reading:
    from workloads.formats.msccl_reader import read_msccl

    schedule = read_msccl(path)
    if size is not None and size < 1:
        raise ConfigError(f"must be at least 1 byte, not {size}", key="size", source=str(path))
    notes = (
        [] if size else [f"the file is for any size; the buffer is {DEFAULT_BYTES} bytes unless size says otherwise."]
    )
    group = Group("all", "dp", tuple(range(schedule.n)))
    op = Collective(0, schedule.kind, schedule.kind, "all", size or DEFAULT_BYTES, algorithm=schedule.algorithm)
    program = Program(path.stem, ((op,),) * schedule.n, {"all": group}, {schedule.algorithm: schedule})
    return Reading("MSCCL XML", program, tuple(notes))
