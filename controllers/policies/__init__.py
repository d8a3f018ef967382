"""The policies: which circuits a group of ranks needs, one class per published system or baseline."""
