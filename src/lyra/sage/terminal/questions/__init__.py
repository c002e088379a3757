"""Questions to the person at the terminal. Start with `question`; `queue` has those that are open."""
