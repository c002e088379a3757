"""Text for a terminal: made harmless, styled, laid out. No module here knows sessions, turns or screens.

Start with `styled_lines`: what a line is, and what all text passes.
"""
