"""How Linux makes a fabric: namespaces, links, queues and a private Open vSwitch, brought up and down in batches."""
