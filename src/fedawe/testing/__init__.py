"""Checks for algorithms, tasks and dynamics of one's own, as the built-in ones pass them.

Each check raises a `CheckFailed` that says which law is broken and how; none returns anything.
"""

from fedawe.testing.algorithms import check_algorithm
from fedawe.testing.dynamics import check_dynamics
from fedawe.testing.failed import CheckFailed
from fedawe.testing.tasks import check_task

__all__ = ["CheckFailed", "check_algorithm", "check_dynamics", "check_task"]
