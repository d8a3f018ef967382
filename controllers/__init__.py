"""Which circuits, and when: circuits and matchings, the policies, the Ryu app and its northbound faces."""
