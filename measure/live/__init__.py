"""Measurements on the live machine: counters, captures, probes, processor load and the machine benchmark."""

import topos.kernel  # noqa: F401  before anything takes pyroute2, of which it lets only the messages be loaded
