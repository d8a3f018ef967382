"""Foundations shared by all packages: errors, scale, sizes, the timeline, the wire protocol and child processes.

This package imports none of the others (``topos``, ``workloads``, ``controllers``, ``measure``, ``experiments``).
"""

__version__ = "0.6.0"
AUTHORS = "The Railyard authors"
LICENSE = "Apache-2.0"
