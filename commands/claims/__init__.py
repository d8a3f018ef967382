"""Claims: numbers that this project states, each with its source, the command that measures it, and a verdict."""
