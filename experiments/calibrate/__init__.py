"""The calibration experiment: brings small fabrics up and measures what this machine carries."""
