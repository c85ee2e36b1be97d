"""The one way in which the local stack refuses: a line that says what is wrong and what to do about it."""


class StackRefused(Exception):
    """Printed as one line, without a traceback; the process ends with exit code 1."""
