"""Training jobs on racks that recover from failures; shared by the failover and server-fabric experiments."""
