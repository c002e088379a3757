"""Interrupts: questions to a human with a time to live and an answer.

`service` opens, answers and expires them, `interrupt` is one of them. `program_questions` has those of programs and
those from outside a program, whose rows `state` folds. Which question is asked, and when, is decided by the callers.
"""
