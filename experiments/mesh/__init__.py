"""The mesh experiment: which matchings a photonic mesh can route (PIP); computed, without packets."""
