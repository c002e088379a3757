"""Attacks on Sage through its own faces: sessions, `sage -p`, the terminal, the editor protocol. Start with `world`."""
