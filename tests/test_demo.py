"""The demo follows its rule, and its page shows the influence that the audit computes."""

import dataclasses
import re
from pathlib import Path

import numpy as np

from fedawe.audit import audit
from fedawe.experiments.demo import demo, fleet, write_fleet
from fedawe.report.influence import influences_of
from fedawe.report.page import render


def test_labels_depend_on_availability_as_the_rule_says(tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet.npz")
    population = demo(tmp_path / "fleet.npz").population(seed=1)
    assert population.trace.p is not None
    base = population.trace.p.mean(0)  # the sine has the same factor for all
    assert (np.diff(base) > 0).all()
    assert np.allclose(np.diff(base), np.diff(base)[0])
    assert np.isclose(base[-1] / base[0], 0.95 / 0.05)
    frequencies = population.task.frequencies
    assert frequencies is not None
    for digit in range(10):
        mine = frequencies[10 * digit : 10 * digit + 10]
        assert (mine.argmax(1) == digit).all()
        assert 0.7 < mine[:, digit].mean() < 0.9


def test_the_page_shows_the_influence_that_the_audit_computes(tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet.npz")
    whole = demo(tmp_path / "fleet.npz", rounds=300)
    some = {label: whole.algorithms[label] for label in ("fedavg", "fedawe", "fedavg-known")}
    small = dataclasses.replace(whole, algorithms=some, local=whole.local_of("fedavg"), seeds=(0,), rounds=20)
    comparison = small.run(tmp_path / "runs", engine="stacked", workers=1).compare()
    found, expected = influences_of(comparison.runs), audit(fleet().trace.first(20))
    assert found is not None
    for label in some:
        assert np.allclose(found.influences[label].fair, expected.influences[label].fair)
    page = render([comparison])
    assert page.index("Influence of each client") < page.index("Class by class</h3>") < page.index("<h3>Results")
    assert len(re.findall(r'<svg class="bars"', page)) == 3
    rare = expected.influences["fedavg"].fair[np.argsort(fleet().trace.on[:20].mean(0), kind="stable")[:10]].mean()
    assert f"the 10 clients that were available least had {rare:.2f} under FedAvg" in page
