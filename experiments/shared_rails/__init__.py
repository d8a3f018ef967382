"""Training jobs that come and go on shared rails, through dead chips and a lost controller."""
