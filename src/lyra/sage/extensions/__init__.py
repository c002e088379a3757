"""Extensions of Sage: hooks, which run at moments of a session.

Start with `hooks`. What a project brings counts once its content is trusted.
"""
