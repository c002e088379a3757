"""Questions to the person at the terminal. Start with `question`; `desk` has those that are open."""
