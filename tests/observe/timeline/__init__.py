"""Time travel through journals."""
