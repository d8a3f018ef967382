"""Fabrics as Mininet topologies, their plans as data, and (``topos.kernel``) the emulation that runs them."""
