"""How an agent's bytes move: connections, messages, token buckets, slots of a rotation."""
