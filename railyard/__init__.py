"""Railyard: one experiment, from the file a person writes to the folder of results.

The four rooms (``topos``, ``controllers``, ``workloads``, ``measure``) know nothing of each other's
insides; this package holds what all of them share (errors, scale, the experiment) and the run that
leads them.
"""

__version__ = "0.5.0"
