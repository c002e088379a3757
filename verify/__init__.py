"""Tools that check Lyra itself. They stand beside the tests and are not part of the wheel."""
