"""The declaration of a node, as its file has it."""
