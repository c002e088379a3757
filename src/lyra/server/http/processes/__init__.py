"""The processes of a kernel for people: rows of a tree that is kept current, and restarts on request.

Start with `live_tree`; `restarting` asks supervisors. Both read the kernel and keep nothing durable.
"""
