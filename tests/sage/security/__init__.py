"""What text from outside cannot do through Sage's faces: quick cases of `verify/attacks/sage`. Start with test_keys."""
