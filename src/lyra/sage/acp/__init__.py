"""Sage in editors: the Agent Client Protocol over stdin and stdout.

Start with `agent`, the methods that an editor calls; `updates` turns what happens into the protocol's words.
"""
