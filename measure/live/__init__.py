"""Measurements on the live machine: counters, captures, probes, processor load and the machine benchmark."""
