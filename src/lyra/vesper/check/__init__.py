"""What is wrong with a node, and the node in the typed IR."""
