"""Policies, which choose the circuits of a group of ranks: one class per published system or baseline."""
