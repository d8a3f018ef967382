#!/usr/bin/python3 -EB
"""The command ``railyard run straggler``, in the project's virtual environment."""

import _venv

_venv.railyard("run", "straggler")
