"""Skills: instructions for kinds of work that a model reads when it needs them, and that a person starts as commands.

Start with `skills`, which also has the tool by which a model reads one.
"""

from lyra.sage.extensions.skills.skills import Skill, Skills

__all__ = ["Skill", "Skills"]
