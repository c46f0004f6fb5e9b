"""Findings about names of clients: clients without usable rows, and names that may mean the same client."""

import re

from fedawe.audit.logs.findings import Finding, counted, shown, some


def without_rows(gone: list[str], reasons: dict[str, str]) -> list[Finding]:
    """A finding about clients whose rows were all left out."""
    if not gone:
        return []
    named = some([f"{shown(client)}: {reasons[client]}" for client in gone])
    have = "client has" if len(gone) == 1 else "clients have"
    text = f"{len(gone):,} {have} no usable row ({named}); counted as never available"
    return [Finding("clients without rows", len(gone), text)]


def outside(clients: set[str]) -> list[Finding]:
    """A finding about clients that have rows only outside --since and --until."""
    if not clients:
        return []
    named = some(sorted(clients))
    text = f"{counted(len(clients), 'client')} with rows only outside --since and --until ({named}); not counted"
    return [Finding("clients outside", len(clients), text)]


def alike(names: list[str]) -> list[Finding]:
    """A finding about names that may mean one client: they differ in case, in inner spaces, or as 5 and 5.0 do."""
    same: dict[str, list[str]] = {}
    for name in names:
        plain = re.sub(r"\s+", " ", name.casefold())
        same.setdefault(re.sub(r"^(-?)0*(\d+)\.0*$", r"\1\2", plain), []).append(name)
    pairs = [f"{' and '.join(map(shown, sorted(found)))}" for found in same.values() if len(found) > 1]
    if not pairs:
        return []
    said = f"{counted(len(pairs), 'name')} written in more than one way"
    text = f"{said} ({some(sorted(pairs))}); counted as different clients"
    return [Finding("names alike", len(pairs), text)]
