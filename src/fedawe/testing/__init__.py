"""Checks for your own algorithms, tasks and dynamics; the built-in ones pass the same checks.

Every check returns None, or raises a `CheckFailed` whose message says which requirement is not met, and how.
"""

from fedawe.testing.algorithms import check_algorithm
from fedawe.testing.dynamics import check_dynamics
from fedawe.testing.failed import CheckFailed
from fedawe.testing.tasks import check_task

__all__ = ["CheckFailed", "check_algorithm", "check_dynamics", "check_task"]
