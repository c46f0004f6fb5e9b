"""A gate for continuous integration: `--fail-if 'fedavg.bias > 0.2'`."""

import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from xml.sax.saxutils import escape, quoteattr

from fedawe.audit import Audit
from fedawe.core.errors import UserError

OPERATORS = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
FAILED = 3  # exit code


@dataclass(frozen=True)
class Condition:
    """A condition under which `--fail-if` fails."""

    text: str
    quantity: str
    sign: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read a condition such as `quantity > number`, with one of > < >= <=; the number may be a percentage."""
        found = re.fullmatch(r"\s*(.+?)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*(%?)\s*", text)
        try:
            limit = float(found[3]) if found else math.nan
        except ValueError:
            limit = math.nan
        if found is None or not math.isfinite(limit):
            raise UserError(
                f"--fail-if {text!r}: expected a quantity, one of > < >= <= and a number: fedavg.bias > 0.2"
            )
        return cls(text.strip(), found[1], found[2], limit / 100 if found[4] else limit)


@dataclass(frozen=True)
class Result:
    """A condition and the value of its quantity."""

    condition: Condition
    value: float

    @property
    def failed(self) -> bool:
        """Whether the condition holds, so that the gate fails; a value that is not a number fails too."""
        return math.isnan(self.value) or bool(OPERATORS[self.condition.sign](self.value, self.condition.limit))

    @property
    def sentence(self) -> str:
        """The result in words."""
        limit = f"{self.condition.sign} {self.condition.limit:g}"
        if math.isnan(self.value):
            return f"{self.condition.quantity} has no value in this log, so that it cannot be compared with {limit}"
        value = f"{self.value:.4g}" if abs(self.value) < 1000 else f"{self.value:.0f}"
        return f"{self.condition.quantity} is {value}, {'which is' if self.failed else 'not'} {limit}"


def quantities(found: Audit) -> dict[str, float]:
    """All quantities that a condition can name, with their values."""
    fleet = found.fleet
    nan = float("nan")
    out = {
        "fleet.clients": float(fleet.clients),
        "fleet.never": float(len(fleet.never)),
        "fleet.never_share": len(fleet.never) / fleet.clients,
        "fleet.rate": fleet.rate,
        "fleet.smallest_rate": fleet.delta,
        "fleet.empty_share": fleet.empty / fleet.rounds,
        "fleet.active": float(fleet.k.mean()),
        "fleet.multiplier": fleet.multiplier,
        "fleet.staleness": fleet.staleness.mean,
        "fleet.longest_absence": float(fleet.longest_off),
        "fleet.live_versions": float(fleet.live_versions.max()),
        "fleet.outages": float(len(fleet.together.outages)),
        "fleet.drift_p": nan if fleet.drift is None else fleet.drift.fleet_p,
        "fleet.clients_changed": nan if fleet.drift is None else float(fleet.drift.changed),
    }
    for name, influence in found.influences.items():
        least, most = influence.extremes(fleet.seen)
        out |= {
            f"{name}.bias": influence.among(fleet.seen),
            f"{name}.bias_all": influence.total_variation,
            f"{name}.effective_clients": influence.effective_clients,
            f"{name}.least": least,
            f"{name}.most": most,
            f"{name}.speed": influence.speed,
        }
        for table in found.groups:
            for group, fair in zip(table.names, table.fair(influence.shares), strict=True):
                out[f"{name}.{table.kind}.{group}.share"] = float(fair)
                if name == "fedavg":
                    out[f"{table.kind}.{group}.share"] = float(fair)
    return out


def judged(found: Audit, conditions: Sequence[Condition]) -> list[Result]:
    """Each condition with the value of its quantity; refuses unknown quantities."""
    known = quantities(found)
    for condition in conditions:
        if condition.quantity not in known:
            near = get_close_matches(condition.quantity, known, n=3, cutoff=0.5) or ["fedavg.bias", "fleet.never"]
            raise UserError(f"--fail-if {condition.text!r}: unknown quantity; perhaps you meant {', '.join(near)}")
    return [Result(condition, known[condition.quantity]) for condition in conditions]


def annotations(results: Sequence[Result]) -> list[str]:
    """For GitHub Actions: an error for each condition that failed, a notice for each other."""
    out = []
    for result in results:
        level = "error" if result.failed else "notice"
        text = result.sentence.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        out.append(f"::{level} title=fedawe audit::{text}")
    return out


def junit(results: Sequence[Result], log: str) -> str:
    """For test reports: a suite with a case for each condition."""
    failures = sum(result.failed for result in results)
    cases = []
    for result in results:
        inside = f"<failure message={quoteattr(result.sentence)}/>" if result.failed else ""
        said = f"<system-out>{escape(result.sentence)}</system-out>"
        name = quoteattr(f"fail if {result.condition.text}")
        cases.append(f'  <testcase classname="fedawe.audit" name={name}>{inside}{said}</testcase>')
    head = f'<testsuite name={quoteattr(f"fedawe audit {log}")} tests="{len(results)}" failures="{failures}">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>", ""])
