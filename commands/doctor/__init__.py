"""What this machine has and lacks for a run, found without changing anything."""
