#!/usr/bin/python3 -EB
"""The command ``railyard show``, in the project's virtual environment."""

import _venv

_venv.railyard("show")
