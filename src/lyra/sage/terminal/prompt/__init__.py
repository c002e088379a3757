"""The prompt: its text, history, completion, and what goes with a message. Start with `box`."""
