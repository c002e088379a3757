"""Stores that earlier versions of Lyra left in the middle of their work; today's version opens and finishes each."""
