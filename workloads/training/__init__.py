"""Training steps generated from a model's shape: parallelism, pipeline, experts, ranks."""
