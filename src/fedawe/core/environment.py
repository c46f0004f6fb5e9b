"""The versions and the hardware with which a result was computed."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch


def environment() -> dict[str, str | int]:
    """Versions of the software, the processor, and the number of cores."""
    return {
        "fedawe": version("fedawe"),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _processor(),
        "cores": os.cpu_count() or 1,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
