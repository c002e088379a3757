"""Sage in editors: the Agent Client Protocol over stdin and stdout.

Start with `agent`, the methods that an editor calls; `open_session` is one session there.
"""
