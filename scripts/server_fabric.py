#!/usr/bin/python3 -EB
"""The command ``railyard run server-fabric``, in the project's virtual environment."""

import _venv

_venv.railyard("run", "server-fabric")
