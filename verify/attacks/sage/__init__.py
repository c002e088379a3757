"""Attacks on Sage through its own faces: sessions, `sage -p`, the terminal, the editor protocol.

world               a project, a home and an outside folder for one attempt; start here
injected_commands   text that would become a command, git's settings, and ways around the rules
paths               links, ids and names that lead out of the project
exposed_keys        a provider's key in all that is kept and shown
screens             text that would act on a screen, and questions that the model prints
"""
