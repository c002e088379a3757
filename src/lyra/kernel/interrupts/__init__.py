"""Interrupts: questions to a human with a time to live and an answer.

`service` opens, answers and expires them, `interrupt` is one of them. Those of programs are in `program_questions`,
others in `outside_questions`, whose rows `state` folds. Which question is asked, and when, is decided by the callers.
"""
