"""The agent: the process on each host that runs its rank's part of a program over real sockets."""
