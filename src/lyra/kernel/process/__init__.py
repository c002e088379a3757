"""Processes as the kernel holds them: the process itself, its mailbox, links and call keys; the table and the
scheduler.

Nothing here starts or ends a process; that is `kernel.programs`.
"""
