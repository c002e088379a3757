"""Small repositories with a task each, which Sage solves: with a scripted model, or with a real one.

Start with `harness`; `task` reads one file of `tasks/`.
"""
