"""Writes the app of the digits as a folder for `flwr run`; it uses the installed package."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedawe.core.files import new_folder
from fedawe.deploy.digits import DEFAULTS

# Every key that `flwr run -c` may override must be in the app's configuration.
CONFIG: Mapping[str, Any] = {
    "algorithm": "fedawe",
    "num-rounds": 10,
    "timeout": 60.0,
    "quorum": 0,
    "out": "",
    "authenticated": False,
    "max-norm": 0.0,
    "max-statistics": 100.0,
    "max-versions": 0,
    **DEFAULTS,
}
APP = """from fedawe.deploy.digits import client_app, server_app

client = client_app()
server = server_app()
"""
PROJECT = """[project]
name = "digits"
version = "1.0.0"
description = "Handwritten digits, partitioned among clients that are available only some of the time."
license = {{ file = "LICENSE" }}
dependencies = ["fedawe[flower]"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "fedawe"

[tool.flwr.app.components]
serverapp = "digits_app:server"
clientapp = "digits_app:client"

[tool.flwr.app.config]
{config}
"""


def write_app(folder: Path, code: str = APP, extra: Mapping[str, Any] | None = None) -> Path:
    """Write the folder of an app; `code` defines `client` and `server`, `extra` adds keys to its configuration."""
    config = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {**CONFIG, **(extra or {})}.items())
    new_folder(folder)
    (folder / "pyproject.toml").write_text(PROJECT.format(config=config))
    (folder / "LICENSE").write_text("Apache-2.0\n")
    (folder / "digits_app.py").write_text(code)
    return folder
