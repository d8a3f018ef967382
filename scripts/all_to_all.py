#!/usr/bin/python3 -EB
"""The command ``railyard run all-to-all``, in the project's virtual environment."""

import _venv

_venv.railyard("run", "all-to-all")
