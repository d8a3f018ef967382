"""What a user's PyTorch script communicates: recorded without its network, or carried by this one."""
