"""The exception for invalid user input."""


class InputError(Exception):
    """Invalid input; the message is one line and names the value and the remedy.

    Not a ValueError: those are bugs of this package and keep their traceback.
    """
