"""Attributes that are set on nodes of a function's syntax tree: the numbers of its calls, loops and statements."""

from __future__ import annotations

from typing import Final

SITE: Final = "lyra_site"  # the number of an agent call
CHECKED: Final = "lyra_checked"  # set on agent calls in statements that are watched for errors
LOOP: Final = "lyra_loop"  # the number of a loop whose items are compared when the program reads them
LOOK: Final = "lyra_look"  # the number of a statement at which a lookahead may begin
