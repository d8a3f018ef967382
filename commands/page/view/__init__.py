"""What a page shows of a run, made of its events and plans: pure, without a clock or a machine."""
