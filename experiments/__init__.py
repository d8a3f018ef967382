"""Experiments, one folder each; the modules at this level are shared by all of them."""
