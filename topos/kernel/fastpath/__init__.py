"""The fast path: the kernel forwards what simple flows of Open vSwitch decide, as a hardware offload does."""
