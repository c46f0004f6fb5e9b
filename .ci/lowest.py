"""Runs a part of the tests with the oldest version of every dependency that pyproject.toml allows.

    python .ci/lowest.py            makes .venv-lowest, installs, tests

Extras are included as far as they are listed in EXTRAS. torch is the build of constraints.txt, as everywhere.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-lowest"
EXTRAS = ("export", "logs", "privacy")
TESTS = (
    "test_architecture test_audit test_baselines test_data_formats test_experiment test_export test_fedawe test_fit "
    "test_influence test_logs test_plots test_report test_results test_runs test_theory test_trace"
)


def lowest(requirement: str) -> str | None:
    """The oldest version that a requirement allows, as a constraint; None for torch and for what has no lower bound.

    >>> lowest("numpy>=1.26"), lowest("flwr>=1.41,<1.43"), lowest("fedawe[export]"), lowest("torch>=2.4")
    ('numpy==1.26', 'flwr==1.41', None, None)
    """
    found = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*>=\s*([\w.]+)", requirement)
    return None if found is None or found[1] == "torch" else f"{found[1]}=={found[2]}"


def main() -> None:
    """Installs and tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(line for name in EXTRAS for line in project["optional-dependencies"][name])]
    constraints = VENV / "lowest.txt"
    python = str(VENV / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    given = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    constraints.write_text(given + "\n".join(filter(None, map(lowest, wanted))) + "\n", encoding="utf-8")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint"]
    subprocess.run([*install, str(constraints), f"{ROOT}[{','.join(EXTRAS)}]", "pytest", "hypothesis"], check=True)
    subprocess.run([python, "-m", "pip", "list", "--disable-pip-version-check"], check=True)
    tests = [f"tests/{name}.py" for name in TESTS.split()]
    # Old libraries warn of what newer Pythons will not have; here only results count.
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *sys.argv[1:], *tests]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
