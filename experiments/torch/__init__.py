"""PyTorch scripts of users as jobs on rails: their tensors move over circuits."""
