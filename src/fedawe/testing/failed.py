"""What a check raises."""

from collections.abc import Callable
from typing import Any


class CheckFailed(AssertionError):
    """An object breaks a law; the message says which one and how."""


def expect(holds: bool, said: str) -> None:
    """Raise unless it holds."""
    if not holds:
        raise CheckFailed(said)


def attempted(what: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call that must not raise."""
    try:
        return call(*arguments)
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(f"{what} raises {type(error).__name__}: {error}") from error


def refused(what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """The call must raise a ValueError; fedawe.UserError is one."""
    try:
        call(*arguments)
    except ValueError:
        return
    except Exception as error:
        raise CheckFailed(f"{what} raises {type(error).__name__} ({error}); expected a ValueError") from error
    raise CheckFailed(f"{what} is accepted; expected a ValueError")
