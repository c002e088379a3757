"""Nodes by id and version, and what they need. Start at `folders.Repository`; `versions` says what may be added."""
