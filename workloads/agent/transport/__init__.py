"""The transport of an agent: connections, messages, token buckets, and sending in slots."""
