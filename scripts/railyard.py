#!/usr/bin/env python3
"""The command ``railyard``, in the project's virtual environment."""

import _venv

_venv.railyard()
