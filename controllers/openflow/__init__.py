"""The live controller: turns actions of the engine into OpenFlow messages and events of switches into its calls."""
