"""The fast path: the kernel forwards the packets that simple flows of Open vSwitch decide, as a hardware offload does."""
