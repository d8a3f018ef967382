"""What is plugged into what, at what rate: Mininet topologies and the fabric that brings them up."""
