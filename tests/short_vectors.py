"""A test file once more, in a process of its own, on a processor that is said to have vectors of eight numbers."""

import os
import subprocess
import sys

import pytest

from fedawe.tasks.executors.kernels.vectors import LANES

SHORT = "FEDAWE_TEST_LANES" in os.environ  # whether this process is such a one
only_with_long_vectors = pytest.mark.skipif(LANES == 8 or SHORT, reason="vectors here have eight numbers anyway")

SCRIPT = """\
import sys, pytest, torch
torch.backends.cpu.get_cpu_capability = lambda: "AVX2"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", sys.argv[1]]))
"""


def passes_with_short_vectors(path: str) -> None:
    """All tests of the file pass there."""
    environment = {**os.environ, "FEDAWE_TEST_LANES": "8"}
    done = subprocess.run([sys.executable, "-c", SCRIPT, path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
