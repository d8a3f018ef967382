"""Which chips of a rack a slice gets: contiguous blocks first, else parts put together over fibres (MORPHLUX)."""
