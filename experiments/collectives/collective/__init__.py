"""The collective experiment: algorithms over buffer sizes, as nccl-tests measure them."""
