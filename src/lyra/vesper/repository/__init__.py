"""Nodes by id and version, and what depends on what. Start at `folders.Repository`; `dependencies` has the calls
between nodes, `additions` what may be added.
"""
