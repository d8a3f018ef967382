#!/usr/bin/python3 -EB
"""The command ``railyard run rails``, in the project's virtual environment."""

import _venv

_venv.railyard("run", "rails")
