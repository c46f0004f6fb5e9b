"""What all tests share: one thread, no display, the same examples in every run."""

import os
import sys
from pathlib import Path

import torch
from hypothesis import settings

os.environ["MPLBACKEND"] = "Agg"
sys.path.insert(0, str(Path(__file__).parent))  # for `import table`, wherever pytest was started

torch.set_num_threads(1)
# No deadline: nothing here is about time. The examples depend on the test alone, so that a failure comes back.
settings.register_profile("fedawe", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("fedawe")
