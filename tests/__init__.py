"""A package, so that ``tests.campaign`` and ``tests.fuzz`` come before the ``tests`` of other packages."""
