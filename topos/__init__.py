"""Fabrics as Mininet topologies, their plans as data, and (``topos.kernel``) the emulation that runs them."""

import sys

if sys.version_info < (3, 12):
    # Mininet imports distutils: that of setuptools, which would come instead, takes a sixth of a second.
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "_distutils_hack"]
