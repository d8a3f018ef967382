#!/usr/bin/env python3
"""The command ``railyard run failover``, in the project's virtual environment."""

import _venv

_venv.railyard("run", "failover")
