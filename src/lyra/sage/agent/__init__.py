"""The agent of a session that is open, and what it works with: `tasks` are its sub-agents, `worktrees` theirs.

Start with `live`: LiveSession, which every face of Sage holds.
"""
