"""Errors: a mistake of the user is a `UserError` (one line, exit code 2); any other exception is a bug in fedawe."""


class UserError(ValueError):
    """A mistake of the user. The message says in one line what was received, what was expected and what to do."""


class Diverged(UserError):
    """A run whose numbers are no longer finite; the message has the round, the client and the learning rate."""
