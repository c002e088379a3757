"""Git worktrees for sub-agents: made without running what a repository names, and taken over all or nothing.

Start with `worktrees`; `git` runs git, `files` reads, compares and writes.
"""
