"""The live controller: actions of the engine become OpenFlow messages, switch events come back."""
