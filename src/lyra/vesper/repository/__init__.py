"""Nodes by id and version, and what depends on what."""
