"""Allocation of slices of a rack: contiguous blocks first, else parts joined by circuits over fibres (MORPHLUX)."""
