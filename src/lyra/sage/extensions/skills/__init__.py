"""Skills: instructions for kinds of work that a model reads when it needs them, and that a person starts as commands.

Start with `skills`. `triggers` says which of them fit a message, `tool` is how a model reads one, `built_in` has those
that come with Sage.
"""

from lyra.sage.extensions.skills.skills import Skill, Skills

__all__ = ["Skill", "Skills"]
