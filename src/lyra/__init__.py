"""Lyra, an operating system for AI agents."""
