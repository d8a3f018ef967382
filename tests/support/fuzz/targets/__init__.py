"""The targets, by what they read; ``fuzz.catalog`` lists them all."""
