"""Reader and writer of MSCCL XML: ``read_msccl``, ``parse_msccl`` and ``write_msccl``."""

from __future__ import annotations

from workloads.formats.msccl_reader import parse_msccl, read_msccl
from workloads.formats.msccl_writer import write_msccl

__all__ = ["parse_msccl", "read_msccl", "write_msccl"]
