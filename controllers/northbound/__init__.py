"""The northbound interfaces of the controller for agents, people and scripts: job channel and REST."""
