#!/usr/bin/python3 -EB
"""The command ``railyard run collective``, in the project's virtual environment."""

import _venv

_venv.railyard("run", "collective")
