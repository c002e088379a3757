"""Text for a terminal: made harmless, styled, laid out. No module here knows sessions, turns or screens.

Start with `safe_text`, which all text passes, and `styled_lines`, what a line is.
"""
