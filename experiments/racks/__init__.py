"""Training jobs on racks that live through failures; shared by the failover and server-fabric experiments."""
