"""What is read off the machine while a run goes on, and what the machine can carry."""
