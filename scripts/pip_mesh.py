#!/usr/bin/python3 -EB
"""The command ``railyard mesh``, in the project's virtual environment."""

import _venv

_venv.railyard("mesh")
