"""What happened at a measured point, and whether it can be believed."""
