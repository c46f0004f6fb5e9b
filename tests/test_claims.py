"""The sentences of pages that have numbers of results: each is made again from the tables, and must stand there.

That the tables are right, the tests of each folder of results/ check.
"""

import re

import pytest
import scripts


def table(name: str, **only: str) -> dict[str, dict[str, str]]:
    """The rows of a table by algorithm, those in which other cells are as they should be."""
    found = scripts.rows((scripts.RESULTS / name).read_text(encoding="utf-8"))
    named = [row for row in found if all(row[key] == value for key, value in only.items())]
    rows = {row.get("algorithm", next(iter(row.values()))): row for row in named}
    assert len(rows) == len(named), "one row for every algorithm"
    return rows


def ahead(name: str, algorithm: str, column: str = "minus FedAvg (95 %)", **only: str) -> str:
    """A mean difference to FedAvg as it is written in a sentence that says ahead or behind."""
    return re.findall(r"\d+\.\d", table(name, **only)[algorithm][column])[0]


def between(name: str, algorithm: str, column: str = "minus FedAvg (95 %)", **only: str) -> str:
    """Its interval, in brackets; the other way round where the difference is negative and a sentence says behind."""
    mean, low, high = (float(each) for each in re.findall(r"[+-]\d+\.\d", table(name, **only)[algorithm][column]))
    low, high = (low, high) if mean >= 0 else (-high, -low)
    return f"({low:.1f} to {high:.1f})"


def accuracy(name: str, algorithm: str, column: str = "test accuracy", **only: str) -> str:
    """A mean accuracy."""
    return table(name, **only)[algorithm][column].split()[0]


def other(algorithm: str, dynamics: str, data: str = "svhn") -> str:
    """A difference to FedAvg under other dynamics, or on other data, with its sign."""
    return table("conv/others.md", data=data, dynamics=dynamics)[algorithm]["minus FedAvg"]


def fig3(p: str) -> str:
    """What FedAvg loses from the weakest swing to the strongest."""
    said = (scripts.RESULTS / "mini" / "fig3.txt").read_text(encoding="utf-8")
    (line,) = (line for line in said.splitlines() if line.startswith(f"p = {p}:"))
    mean, low, high = re.findall(r"-(\d+\.\d)", line)
    return f"{mean} ({high} to {low})"


EQUAL, TUNED, HORIZONS, SPEED = "conv/equal.md", "conv/tuned.md", "conv/horizons.md", "conv/speed.md"
SLOW = [ahead(HORIZONS, "FedAWE", rates="equal rates", rounds=rounds) for rounds in ("300", "500", "1000")]
GAINED = re.search(r"itself changes by \+(\d\.\d)", (scripts.RESULTS / "conv" / "short.md").read_text(encoding="utf-8"))
assert GAINED is not None
LAST = "last aggregate: minus FedAvg (95 %)"
RARE = "digits 7 to 9"
RECEIVED, SEARCHED = "mean of the models received", "rates searched for"
REACHED = {name: table(SPEED, rates=SEARCHED)[name]["80 %"] for name in ("MIFA", "FedAvg", "FedAWE")}

PAPER, MODELS, TIED = "conv/paper.md", "conv/models.md", "fleets/tied.md"
SINE, PHONES = "neighbours/sine.md", "neighbours/phones.md"

THEIRS = "the paper (32 x 32)"
BELOW = [float(accuracy(PAPER, name, THEIRS)) - float(accuracy(PAPER, name)) for name in table(PAPER)]

# At each kind of rates: how many of the paper's orderings hold, of how many, and of the clear ones, of how many.
HELD = [
    (hold, of, clear_hold, clear_of)
    for of, hold, clear_of, clear_hold in re.findall(
        r"of the paper's (\d+) orderings of two algorithms by mean test accuracy (\d+) hold here; "
        r"of the (\d+) that are beyond two standard errors there (\d+) hold",
        (scripts.RESULTS / "conv" / "short.md").read_text(encoding="utf-8"),
    )
]

BEYOND = "mini/beyond.md"
ALPHA, GAMMA = "mini/alpha.md", "mini/gamma.md"
GAINS = {a: ahead(ALPHA, "MIFA", setting=f"α = {a}") for a in ("0.05", "0.1", "1.0")}
BETWEEN = {a: between(ALPHA, "MIFA", setting=f"α = {a}") for a in GAINS}
UNEVEN, THEIRS_UNEVEN = (
    [table(ALPHA, setting=f"α = {a}")["FedAWE"][column].split()[0] for a in GAINS]
    for column in ("minus FedAvg (95 %)", "minus FedAvg, the paper")
)

GAMMAS = ("γ = 0.1", "γ = 0.2", "γ = 0.3")
SWING = {name: [ahead(GAMMA, name, setting=g) for g in GAMMAS] for name in ("MIFA", "FedAU", "FedAWE")}
THEIRS_SWING = [table(GAMMA, setting=g)["FedAWE"]["minus FedAvg, the paper"].lstrip("+") for g in GAMMAS]

LEADS = [line for line in (scripts.RESULTS / BEYOND).read_text(encoding="utf-8").splitlines() if "FedAvg" in line]
BEHIND = re.findall(r"−(\d+\.\d) \[−\d+\.\d, \+", LEADS[0])  # with intervals that contain zero

CLAIMS = {
    "results.md": [
        f"is ahead of FedAvg by {ahead(PAPER, 'FedAvg-known')} points too, and FedAvg itself gains {GAINED[1]} points",
        f"FedVARP and MIFA are ahead of FedAvg by {ahead(EQUAL, 'FedVARP')} points, "
        f"FedAU and FedAvg-known by {ahead(EQUAL, 'FedAU')}.",
        f"it was {SLOW[0]} points behind FedAvg after 300 rounds, {SLOW[1]} after 500 and {SLOW[2]} after 1000",
        f"FedAvg recognises these digits in {accuracy(TIED, 'fedavg', RARE)} % of cases, and MIFA, which the audit "
        f"recommends for that trace, in {accuracy(TIED, 'mifa', RARE)} %",
        f"FedAWE is {ahead(TUNED, 'FedAWE')} points ahead {between(TUNED, 'FedAWE')}, and the average over clients "
        f"that FedAWE's model is raises FedAvg from {accuracy(TUNED, 'FedAvg')} to "
        f"{accuracy(MODELS, 'FedAvg', RECEIVED, rates=SEARCHED)} %, which is what FedAWE has",
        f"At rates searched for MIFA has {accuracy(TUNED, 'MIFA')} %, and reaches 80 % after {REACHED['MIFA']} rounds, "
        f"FedAvg after {REACHED['FedAvg']} and FedAWE after {REACHED['FedAWE']}.",
        f"at the paper's rates by {ahead(PAPER, 'FedAWE')} points and at rates searched for by "
        f"{ahead(TUNED, 'FedAWE')}, where the same average over clients brings FedAvg level with it; "
        f"at equal rates by {ahead(EQUAL, 'FedAWE')}, which may be chance.",
        f"it is {ahead(SINE, 'fedawe:clip=0.5')} points behind under the sine, "
        f"and {ahead(PHONES, 'fedawe:clip=0.5')} on the phones",
        f"at rates searched for MIFA has {accuracy(TUNED, 'MIFA')} and FedAWE {accuracy(TUNED, 'FedAWE')} |",
        f"by {ahead(PHONES, 'fedavgm')} to {ahead(SINE, 'feddyn')} points. FedAdam and FedAvgM do nothing",
        f"At rates searched for MIFA, FedAU, FedAWE and FedVARP are ahead by {ahead(TUNED, 'MIFA')}, "
        f"{ahead(TUNED, 'FedAU')}, {ahead(TUNED, 'FedAWE')} and {ahead(TUNED, 'FedVARP')} points",
        f"FedAWE minus FedAvg is {other('FedAWE', 'stationary')} under stationary availability, "
        f"{other('FedAWE', 'staircase')} under the staircase, {other('FedAWE', 'interleaved')} under the interleaved "
        f"sine, and {other('FedAWE', 'sine', 'cifar10')} on CIFAR-10 under the sine; MIFA minus FedAvg is "
        f"{other('MIFA', 'stationary')}, {other('MIFA', 'staircase')}, {other('MIFA', 'interleaved')} and "
        f"{other('MIFA', 'sine', 'cifar10')} (",
        f"it loses {fig3('0.1')} with a small network",
        f"MIFA has the highest accuracy in all three: {accuracy(BEYOND, 'MIFA', 'markov')} % under Markov chains, "
        f"{accuracy(BEYOND, 'MIFA', 'cyclic')} under cycles and {accuracy(BEYOND, 'MIFA', 'outages')} under outages.",
        "FedAWE is behind FedAvg by {}, {} and {} points; all intervals contain zero.".format(*BEHIND),
        f"MIFA is ahead of FedAvg by {GAINS['0.05']} points with α = 0.05 {BETWEEN['0.05']}, by {GAINS['0.1']} with "
        f"0.1 {BETWEEN['0.1']}, and by {GAINS['1.0']} with 1.0 {BETWEEN['1.0']}.",
        f"FedAU and FedAvg-known gain {ahead(ALPHA, 'FedAU', setting='α = 0.05')} and "
        f"{ahead(ALPHA, 'FedAvg-known', setting='α = 0.05')} points with α = 0.05, and at most "
        f"{ahead(ALPHA, 'FedAvg-known', setting='α = 1.0')} with 1.0",
        f"FedAWE's difference to FedAvg** is {UNEVEN[0]}, {UNEVEN[1]} and {UNEVEN[2]} points; all three intervals "
        "contain zero",
        f"MIFA is ahead of FedAvg by {GAINS['1.0']} points if the data is nearly even (α = 1.0), by {GAINS['0.1']} "
        f"with the paper's α = 0.1, and by {GAINS['0.05']} with α = 0.05",
        f"FedAWE minus FedAvg is {UNEVEN[2]}, {UNEVEN[1]} and {UNEVEN[0]} for α = 1.0, 0.1 and 0.05, and all intervals "
        f"contain zero; MIFA's lead grows from {GAINS['1.0']} to {GAINS['0.1']} and {GAINS['0.05']} points",
        "MIFA is ahead of FedAvg by {}, {} and {} points, FedAU by {}, {} and {}, with intervals above zero.".format(
            *SWING["MIFA"], *SWING["FedAU"]
        ),
        "FedAWE is ahead by {}, {} and {} points, with intervals that contain zero; ".format(*SWING["FedAWE"])
        + "in the paper by {}, {} and {}.".format(*THEIRS_SWING),
        f"In the paper it is {THEIRS_UNEVEN[0]}, {THEIRS_UNEVEN[1]} and {THEIRS_UNEVEN[2]}.",
        f"FedAWE's last aggregate is {ahead(MODELS, 'FedAWE', LAST, rates='equal rates')} points behind FedAvg "
        f"at equal rates {between(MODELS, 'FedAWE', LAST, rates='equal rates')}",
        f"FedAWE and FedAvg-known have {accuracy(PAPER, 'FedAWE')} %, MIFA and FedVARP {accuracy(PAPER, 'MIFA')}, "
        f"FedAU {accuracy(PAPER, 'FedAU')}, F3AST {accuracy(PAPER, 'F3AST')}, FedAvg {accuracy(PAPER, 'FedAvg')} and "
        f"FedAvg-all {accuracy(PAPER, 'FedAvg-all')}. Of the {HELD[0][1]} orderings of two algorithms in the paper "
        f"{HELD[0][0]} hold, among them all {HELD[0][3]} that are beyond two standard errors there.",
        "differ from the paper's, which are for images of four times the pixels, "
        f"by at most {max(map(abs, BELOW)):.1f} points.",
        "is not significant after Holm's correction for seven differences "
        f"(p = {table(PAPER)['FedAWE']['p (Holm)']}, three seeds)",
        f"Of the same {HELD[0][3]} orderings, {HELD[1][2]} hold at equal rates and {HELD[2][2]} at rates searched for.",
        *(
            f"by {', '.join(ahead(name, each) for each in ('FedAU', 'MIFA'))} and {ahead(name, 'FedVARP')}"
            for name in (PAPER, EQUAL, TUNED)
        ),
        f"at the paper's rates yes: FedAWE has {accuracy(PAPER, 'FedAWE')}, and MIFA, FedVARP, FedAU and F3AST, "
        f"with half its rate, have {accuracy(PAPER, 'MIFA')}, {accuracy(PAPER, 'FedVARP')}, {accuracy(PAPER, 'FedAU')} "
        f"and {accuracy(PAPER, 'F3AST')}.",
        f"FedVARP and MIFA have {accuracy(EQUAL, 'FedVARP')} and {accuracy(EQUAL, 'MIFA')}, "
        f"FedAWE {accuracy(EQUAL, 'FedAWE')};",
    ],
    "faq.md": [
        f"ahead of FedAvg's by {ahead(PAPER, 'FedAWE')} points at the paper's learning rates",
        f"by {ahead(TUNED, 'FedAWE')} at rates searched for on validation data; "
        f"at equal rates its lead of {ahead(EQUAL, 'FedAWE')} points may be chance",
    ],
}


def test_what_is_called_significant_is() -> None:
    """After Holm's correction, at 5 %."""
    significant = {name for name, row in table(TUNED).items() if row["p (Holm)"] and p_of(row) < 0.05}
    assert significant == {"MIFA", "FedAWE", "FedVARP"}
    assert all(lowest(TUNED, name) > 0 for name in (*significant, "FedAU"))
    assert all(p_of(row) >= 0.05 for row in table(EQUAL).values() if row["p (Holm)"])


def lowest(name: str, algorithm: str) -> float:
    """The lower end of the interval of a difference to FedAvg."""
    return float(re.findall(r"\(([+-]\d+\.\d) to", table(name)[algorithm]["minus FedAvg (95 %)"])[0])


def p_of(row: dict[str, str]) -> float:
    return float(row["p (Holm)"].removeprefix("< "))


def test_the_order_at_the_papers_rates_is_the_papers() -> None:
    """Two that are level here are neighbours there."""
    order = sorted(table(PAPER), key=lambda name: (float(accuracy(PAPER, name)), float(accuracy(PAPER, name, THEIRS))))
    assert order == sorted(table(PAPER), key=lambda name: float(accuracy(PAPER, name, THEIRS)))


def test_what_is_said_to_contain_zero_does() -> None:
    """And what is said to be above zero is."""
    for name, settings in ((ALPHA, [f"α = {a}" for a in GAINS]), (GAMMA, GAMMAS)):
        for setting in settings:
            rows = {key: row["minus FedAvg (95 %)"] for key, row in table(name, setting=setting).items()}
            ends = {key: [float(end) for end in re.findall(r"[+-]\d+\.\d", text)[1:]] for key, text in rows.items()}
            assert ends["FedAWE"][0] < 0 < ends["FedAWE"][1]
            assert ends["MIFA"][0] > 0
            assert ends["FedAU"][0] > 0 or setting == "α = 1.0"


def test_all_clear_orderings_hold_at_the_papers_rates() -> None:
    assert len(HELD) == 3
    assert HELD[0][2] == HELD[0][3]
    assert len({clear_of for _, _, _, clear_of in HELD}) == 1, "the same orderings are counted"


def test_two_that_share_a_number_do() -> None:
    assert accuracy(PAPER, "FedAWE") == accuracy(PAPER, "FedAvg-known")
    assert accuracy(PAPER, "MIFA") == accuracy(PAPER, "FedVARP")
    assert ahead(EQUAL, "FedVARP") == ahead(EQUAL, "MIFA")
    assert ahead(EQUAL, "FedAU") == ahead(EQUAL, "FedAvg-known")
    assert accuracy(TUNED, "FedAWE") == accuracy(MODELS, "FedAvg", RECEIVED, rates=SEARCHED)


def test_who_is_ahead_of_whom_at_which_rates() -> None:
    """As README, results and the questions say: FedAWE at the paper's rates, else MIFA but for one seed."""
    paper = table(PAPER)
    known = {"FedAWE", "FedAvg-known"}  # with the larger rate
    assert paper.keys() - known == {"FedAvg", "FedAU", "MIFA", "FedVARP", "F3AST", "FedAvg-all"}
    assert all(float(accuracy(PAPER, name)) < float(accuracy(PAPER, "FedAWE")) for name in paper.keys() - known)
    for data, dynamics in (("svhn", "stationary"), ("svhn", "interleaved"), ("cifar10", "sine")):
        assert float(other("MIFA", dynamics, data)) > float(other("FedAWE", dynamics, data))
    assert other("MIFA", "staircase") == other("FedAWE", "staircase")
    for name in (EQUAL, TUNED, "conv/full.md"):
        rows = table(name, eta0="0.1") if name == "conv/full.md" else table(name)
        assert rows["MIFA"]["seeds"] == rows["FedAWE"]["seeds"]
        ours, theirs = (float(rows[each]["test accuracy"].split()[0]) for each in ("FedAWE", "MIFA"))
        assert theirs > ours
    for name in (SINE, PHONES, TIED, "fleets/untied.md"):
        others = [
            float(row["test accuracy"].split()[0]) for key, row in table(name).items() if key.startswith("fedawe")
        ]
        assert float(accuracy(name, "mifa")) > max(others)


@pytest.mark.parametrize(("page", "claim"), [(page, claim) for page, claims in CLAIMS.items() for claim in claims])
def test_every_claim_stands_on_its_page(page: str, claim: str) -> None:
    assert claim in " ".join(scripts.page(page).split())
