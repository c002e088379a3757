"""The agent of a session that is open, and what it works with.

Start with `live`: LiveSession, which every face of Sage holds.
"""
