"""The table of README.md on whether FedAWE wins: its cells are those of the tables that they come from."""

from types import ModuleType

import pytest
import scripts

ROWS = scripts.rows((scripts.RESULTS / "winning" / "readme.md").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripts.script("winning")


def test_the_table_follows_from_what_is_kept(script: ModuleType) -> None:
    made = script.markdown(script.table())
    assert made == (scripts.RESULTS / "winning" / "readme.md").read_text(encoding="utf-8")


def differences(table: str, name: str = "algorithm") -> dict[str, str]:
    """minus FedAvg, by algorithm, of a table of results/."""
    found = scripts.rows((scripts.RESULTS / table).read_text(encoding="utf-8"))
    return {row[name].lower(): next(row[key] for key in row if key.startswith("minus FedAvg")) for row in found}


@pytest.mark.parametrize(
    ("table", "rates", "where"),
    [
        ("conv/paper.md", "the paper's", "the paper's at 16 x 16 pixels, SVHN, sine"),
        ("conv/equal.md", "equal", "the paper's at 16 x 16 pixels, SVHN, sine"),
        ("conv/tuned.md", "searched for", "the paper's at 16 x 16 pixels, SVHN, sine"),
        ("neighbours/sine.md", "searched for", "one hidden layer, SVHN, sine"),
        ("neighbours/phones.md", "searched for", "one hidden layer, SVHN, a recorded trace of phones"),
    ],
)
def test_its_differences_are_those_of_other_tables(table: str, rates: str, where: str) -> None:
    (row,) = (
        row
        for row in ROWS
        if row["learning rates"].startswith(rates) and row["network, data, availability, rounds"].startswith(where)
    )
    theirs = differences(table)
    assert row["FedAWE minus FedAvg"] == theirs.get("fedawe:clip=0.5", theirs.get("fedawe"))
    name, _, difference = row["most accurate, minus FedAvg"].partition(", ")
    assert theirs[name.lower()] == difference


def test_other_dynamics_and_data_are_those_of_their_table() -> None:
    found = scripts.rows((scripts.RESULTS / "conv" / "others.md").read_text(encoding="utf-8"))
    names = {"svhn": "SVHN", "cifar10": "CIFAR-10"}
    for fleet in {(row["data"], row["dynamics"]) for row in found}:
        theirs = {row["algorithm"]: row["minus FedAvg"] for row in found if (row["data"], row["dynamics"]) == fleet}
        where = f"the paper's at 16 x 16 pixels, {names[fleet[0]]}, {fleet[1]}, 2000"
        (row,) = (row for row in ROWS if row["network, data, availability, rounds"] == where)
        assert row["FedAWE minus FedAvg"] == theirs["FedAWE"]
        name, _, difference = row["most accurate, minus FedAvg"].partition(", ")
        assert theirs[name] == difference


def test_algorithms_with_fewer_seeds_than_fedavg_are_not_compared(script: ModuleType) -> None:
    found = {"fedavg": {3: 80.0, 4: 80.0}, "fedawe:clip=0.5": {3: 81.0, 4: 83.0}, "mifa": {3: 90.0}}
    row = script.row("here", "equal", found)
    assert (row["seeds"], row["algorithms"]) == (2, 2)
    assert row["FedAWE minus FedAvg"].startswith("+2.0")
    assert row["most accurate, minus FedAvg"].startswith("FedAWE, +2.0")
