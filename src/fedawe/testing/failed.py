"""The exception of failed checks, and functions that raise it."""

from collections.abc import Callable
from typing import Any


class CheckFailed(AssertionError):
    """An object does not meet a requirement; the message says which one, and how."""


def expect(holds: bool, message: str) -> None:
    """Raise a CheckFailed with this message unless the condition holds."""
    if not holds:
        raise CheckFailed(message)


def attempted(what: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call; raises a CheckFailed if the call raises an exception."""
    try:
        return call(*arguments)
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(f"{what} raises {type(error).__name__}: {error}") from error


def refused(what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Raise a CheckFailed unless the call raises a ValueError, such as fedawe.UserError."""
    try:
        call(*arguments)
    except ValueError:
        return
    except Exception as error:
        raise CheckFailed(f"{what} raises {type(error).__name__} ({error}); expected a ValueError") from error
    raise CheckFailed(f"{what} is accepted; expected a ValueError")
