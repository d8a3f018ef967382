#!/usr/bin/python3 -EB
"""The command ``railyard run failover``, in the project's virtual environment."""

import _venv

_venv.railyard("run", "failover")
