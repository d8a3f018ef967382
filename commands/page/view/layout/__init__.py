"""Where the parts of each kind of fabric stand in its drawing, one module a kind."""
