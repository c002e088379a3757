"""Values of nodes: types, names, limits, outcomes."""
