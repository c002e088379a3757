"""Interrupts: questions to a human with a time to live and an answer.

`service` opens, answers and expires them, `interrupt` is one of them, with the queue of all. `program_questions` has
those of programs. Which question is asked, and when, is decided by the callers.
"""
