"""How often the audit's tests of change fire: on fleets that do not change, and on a fleet that falls in mid-week.

python benchmarks/drift.py [--fleets 100] [--days 7]
"""

import argparse

import numpy as np

import fedawe
from fedawe.audit.drift import ALARM, LEVEL, drift_of
from fedawe.availability.clock import Clock
from fedawe.availability.dynamics import Mask

CLOCK = Clock(600.0, start=1_714_348_800.0)  # rounds of ten minutes from a Monday
CLIENTS = 100


def fleet(q: float, p: float, rounds: int, seed: int) -> Mask:
    return fedawe.Trace.draw(fedawe.Markov(q=q), np.full(CLIENTS, p), rounds, seed).on


def rates(fleets: list[Mask]) -> tuple[float, float, float]:
    """Of fleets: how often the alarm is raised; of clients: how many are tested, and how many of these change."""
    found = [one for on in fleets if (one := drift_of(on, CLOCK, np.zeros(CLIENTS, dtype=bool))) is not None]
    alarms = np.mean([one.fleet_changes for one in found])
    tested = sum(one.tested for one in found)
    return float(alarms), tested / (CLIENTS * len(found)), sum(one.changed for one in found) / max(tested, 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fleets", type=int, default=100)
    parser.add_argument("--days", type=int, default=7)
    args = parser.parse_args()
    T = 144 * args.days
    print(f"{args.days} days of 10-minute rounds, {CLIENTS} clients, {args.fleets} fleets a row")
    print(f"| fleet | alarms of the fleet (nominal {ALARM}) | clients tested | of these p < {LEVEL} |")
    print("|---|---|---|---|")
    for q in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        for p in (0.1, 0.4, 0.8):
            alarms, tested, changed = rates([fleet(q, p, T, seed) for seed in range(args.fleets)])
            print(f"| unchanging, q = {q}, p = {p} | {alarms:.3f} | {tested:.0%} | {changed:.3f} |", flush=True)
    half = T // 2
    for q in (0.01, 0.02, 0.05, 0.1, 0.5):
        falling = [
            np.concatenate([fleet(q, 0.6, half, 2 * seed), fleet(q, 0.3, T - half, 2 * seed + 1)])
            for seed in range(args.fleets)
        ]
        alarms, tested, changed = rates(falling)
        print(f"| 60 % to 30 % in the middle, q = {q} | {alarms:.3f} | {tested:.0%} | {changed:.3f} |", flush=True)


if __name__ == "__main__":
    main()
