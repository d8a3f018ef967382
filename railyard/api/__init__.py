"""The Python API: a client of the command ``railyard`` (docs/api.md), which needs the standard library alone."""
