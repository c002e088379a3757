"""Secrets: values that are used and never shown, and the removal of keys from texts.

`secret` holds a value, `redact` removes known keys, and passwords in command lines, `visible` shows characters that a
person could not see.
"""
