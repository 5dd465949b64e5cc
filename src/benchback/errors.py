"""The one exception for what a user can mend."""


class InputError(Exception):
    """Wrong input; the message is one line, names the value and the remedy.

    Not a ValueError: those stay what they are, faults of ours, and keep their traceback.
    """
