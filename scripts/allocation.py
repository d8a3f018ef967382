#!/usr/bin/env python3
"""The command ``railyard run allocation``, in the project's virtual environment."""

import _venv

_venv.railyard("run", "allocation")
