"""The all-to-all experiment: rotors, demand-aware circuits, rings and packet switches."""
