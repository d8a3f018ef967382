"""What a rank does next, as a pure state machine under both the agent on a host and the simulation."""
