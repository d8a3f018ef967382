"""The failover experiment: a chip dies under a training job (LUMION, MORPHLUX, two electrical racks, migration)."""
