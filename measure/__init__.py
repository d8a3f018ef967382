"""What happened, and can it be believed: timeline, metrics, fidelity verdict, model, figures, report."""
