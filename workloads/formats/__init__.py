"""Readers and writers for workload files of other tools: Chakra, MSCCL and layer files."""
