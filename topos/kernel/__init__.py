"""The emulation of a fabric on the Linux kernel: namespaces, links, shaping and a private Open vSwitch per run."""
