"""The mesh experiment: which matchings a photonic mesh can hold (PIP); computed, without packets."""
