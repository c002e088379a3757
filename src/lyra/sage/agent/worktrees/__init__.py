"""Git worktrees for sub-agents: made without running what a repository names, and taken over all or nothing.

Start with `worktrees`, which reads, compares and writes; `git` runs git.
"""
