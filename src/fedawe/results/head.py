"""`experiment.json`, which has the settings of all runs of an experiment, and the names of the folders of runs."""

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

HEAD = "experiment.json"
LONGEST = 200  # characters of a folder name


def folder_name(label: str) -> str:
    """The folder of an algorithm's runs: special characters of the label are quoted, and a long label is shortened."""
    name = quote(label, safe="()=,. +")
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 17]}~{hashlib.sha256(label.encode()).hexdigest()[:16]}"
    return name


def head_content(head: dict[str, Any]) -> bytes:
    """The content of `experiment.json`: the head and its checksum."""
    return (json.dumps({**head, "sha256": _checksum(head)}, indent=1) + "\n").encode()


def read_head(path: Path) -> dict[str, Any] | None:
    """The head in `experiment.json`; None if it is damaged."""
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
        return head if isinstance(head, dict) and head.pop("sha256", None) == _checksum(head) else None
    except (ValueError, RecursionError):
        return None


def _checksum(head: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()
