"""The reference evaluator: slow, obvious, the third opinion."""
