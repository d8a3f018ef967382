"""One fabric over several machines: the process on each machine, and what leads them."""
