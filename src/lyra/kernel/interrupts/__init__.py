"""Interrupts: questions to a human with a time to live and an answer.

`service` opens, answers and expires them, `state` folds their rows, `interrupt` is one of them. Which question is
asked, and when, is decided by the callers.
"""
