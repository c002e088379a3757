"""Sage in a terminal: prompt, streamed answers, tool calls, questions. Printed lines stay in the scrollback.

Only the last block of the screen is redrawn: what runs, a question, the prompt. All text loses control characters
before it reaches the terminal. Start with `loop`: it connects a session with a screen. `conversation` runs the turns,
`turn_view` shows one of them, `screen` draws the live block, `plain` is for terminals that only take lines.
"""
