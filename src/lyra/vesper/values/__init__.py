"""Values of nodes: types, names, limits, outcomes. Start at `types`; `outcome` is what an execution gives."""
