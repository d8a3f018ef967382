#!/usr/bin/env python3
"""The command ``railyard run collective``, in the project's virtual environment."""

import _venv

_venv.railyard("run", "collective")
