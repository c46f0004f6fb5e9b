"""The two kinds of error: a user's mistake is a `UserError` (one line, exit code 2), anything else is a bug of ours."""


class UserError(ValueError):
    """What was received, what was expected, what to do: in one line."""


class Diverged(UserError):
    """A run whose numbers stopped being finite; says in which round, at which client and with which learning rate."""
