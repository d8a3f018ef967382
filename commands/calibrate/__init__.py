"""The calibration experiment: small fabrics on which the capacity of this machine is measured."""
