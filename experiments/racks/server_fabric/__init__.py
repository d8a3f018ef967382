"""The server-fabric experiment: MORPHLUX's prototype of four hosts with two ports each."""
