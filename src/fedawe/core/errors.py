"""The two kinds of error: a user's mistake is a `UserError` (one line, exit code 2), anything else is a bug of ours."""


class UserError(ValueError):
    """A mistake of the user. The message says in one line what was received, what was expected and what to do."""


class Diverged(UserError):
    """A run whose numbers stopped being finite; says in which round, at which client and with which learning rate."""
