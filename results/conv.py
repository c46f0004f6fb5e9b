"""Tables and curves of runs with the paper's networks, made by `fedawe reproduce --preset conv`.

usage: python results/conv.py RUNS...      read the runs below these folders, and write the results to results/conv
       python results/conv.py              write tables and figure again from the stored evaluations

RUNS are folders such as runs/reproduce/conv and runs/reproduce/paper. The size of a run, its data and its dynamics are
read from its record; the sizes are `conv` (16 x 16 pixels, batches of 32), `search` (the same, evaluated on validation
data), and `paper` (32 x 32, 128). Most tables are about SVHN under the sine. Runs that are not complete are included in
results about earlier rounds, but not in those about the last rounds. A run below RUNS replaces the stored evaluations
of the same run; those of other runs are kept.
"""

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from compact import keep, merged
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tables import (
    ORDER,
    PAGES,
    BySeed,
    by_class,
    interval,
    markdown,
    mean,
    over_classes,
    p_text,
    spread,
    summary,
    write,
)

from fedawe.core.describe import path_of
from fedawe.core.palette import LOOKS
from fedawe.paper.beside import Setting
from fedawe.paper.found import metric_of
from fedawe.paper.orderings import orderings
from fedawe.paper.plan import ALGORITHMS, NAMES, Plan, Variant
from fedawe.paper.plan import DYNAMICS as ALL_DYNAMICS
from fedawe.paper.presets import DENSE, Rates, presets, tuned_rates
from fedawe.paper.published import accuracy, published
from fedawe.paper.readings import Evaluate, Only, RateKind, Readings
from fedawe.paper.search import Grid
from fedawe.report.plots.style import Size, figure, line, save
from fedawe.results.folder import RunResult, load_all
from fedawe.results.frame import table as rows_of
from fedawe.results.significance import holm, p_value
from fedawe.results.standings import paired

KEPT = Path(__file__).parent / "conv"
DATA, DYNAMICS, BASELINE = "svhn", "sine", "fedavg"
NAMED: Mapping[RateKind, str] = {"paper": "the paper's rates", "equal": "equal rates", "tuned": "rates searched for"}
KINDS = {kind: said for kind, said in NAMED.items() if kind != "tuned" or DATA in tuned_rates().get("conv", {})}
# Pixels, batch size, and whether samples are held out for validation -> size.
SIZES: Mapping[tuple[object, ...], str] = {
    (16, 32, False): "conv",
    (16, 32, True): "search",
    (32, 128, False): "paper",
}
WINDOW, PERIOD = DENSE[0], 20
HORIZONS, BEFORE = (300, 500, 1000, 2000), 5  # means over 5 evaluations, 20 rounds apart, up to each horizon
TARGETS: Sequence[int] = published()["table8"]["targets"][DATA]
RUN = ["folder", "data", "dynamics", "label", "seed"]  # one run; its folder is one of SIZES
COLUMNS = [*RUN, "status", "round", "test_accuracy", "latest_test_accuracy"]
COLUMNS += ["received_test_accuracy", *(f"test_accuracy_class_{c}" for c in range(10)), "elapsed_seconds"]
COLUMNS += ["validation_accuracy"]
NOTHING = "No such run is complete yet.\n"
MODELS: Mapping[Evaluate, str] = {"latest": "last aggregate", "received": "mean of the models received"}


# Runs


def read(folders: Iterable[Path]) -> pd.DataFrame:
    """One row for every evaluation of the runs below the folders."""
    frames = []
    for folder in folders:
        for experiment in load_all(folder):
            for run in experiment.runs:
                size = size_of(run)
                if size is not None:
                    names, rows = rows_of([(size, experiment, run)])
                    made = {"data": run.header["task"]["name"], "dynamics": run.header["availability"]["title"]}
                    frames.append(pd.DataFrame(rows, columns=names).assign(**made))
    frame = pd.concat(frames)
    ended = frame.status.isin(["complete", "diverged"])
    return frame.assign(status=frame.status.where(ended, "unfinished"))  # a line may be incomplete while it is written


def size_of(run: RunResult) -> str | None:
    """The size of a run, if it is one of SIZES, has dynamics of the paper, and was evaluated; else None."""
    header, task = run.header, run.header.get("task") or {}
    if (
        not run.record.evaluations
        or task.get("model") != "paper"
        or (header.get("availability") or {}).get("title") not in ALL_DYNAMICS
    ):
        return None
    made = task.get("image_size") or 32, (header.get("local") or {}).get("batch"), bool(task.get("validation"))
    return SIZES.get(made)


@functools.cache
def variants(kind: RateKind) -> dict[str, Variant]:
    """The paper's algorithms with this kind of rates, FedAWE with its clip."""
    plan = Plan(presets()["conv"], Readings(rates=kind))
    return {name: plan.variant(DATA, name) for name in ALGORITHMS}


def every_variant() -> dict[str, Variant]:
    """The variants with all kinds of rates, by label."""
    return {variant.label: variant for kind in KINDS for variant in variants(kind).values()}


def of_size(frame: pd.DataFrame, size: str, data: str = DATA, dynamics: str = DYNAMICS) -> pd.DataFrame:
    """The runs of a size on these data under these dynamics."""
    return frame[(frame.folder == size) & (frame["data"] == data) & (frame.dynamics == dynamics)]


def other_fleets(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Pairs of data and dynamics other than SVHN under the sine; SVHN first, and dynamics in the order of the paper."""
    found = set(zip(frame["data"], frame.dynamics, strict=True)) - {(DATA, DYNAMICS)}
    return sorted(found, key=lambda fleet: (fleet[0] != DATA, fleet[0], ALL_DYNAMICS.index(fleet[1])))


def rate_of(variant: Variant) -> str:
    """The eta0 of a variant, and its eta_g if that is not 1."""
    assert variant.rates is not None
    eta0, eta_g = variant.rates
    return f"{eta0:g}" if eta_g == 1 else f"{eta0:g}, eta_g {eta_g:g}"


def last(frame: pd.DataFrame, variant: Variant, evaluate: Evaluate = "mean") -> BySeed:
    """Percent by seed: the mean over the evaluations of the last 50 rounds of complete runs."""
    return summary(frame, variant.label, metric_of("test_accuracy", evaluate, variant.name), WINDOW)


def whole(frame: pd.DataFrame, kind: RateKind) -> dict[str, Variant]:
    """The variants with at least one complete run."""
    return {name: variant for name, variant in variants(kind).items() if last(frame, variant)}


def begun(frame: pd.DataFrame) -> list[RateKind]:
    """The kinds of rates with which an algorithm has been run."""
    labels = set(frame.label)
    return [kind for kind in KINDS if any(variant.label in labels for variant in variants(kind).values())]


# Tables


def table2(frame: pd.DataFrame, kind: RateKind) -> list[dict[str, object]]:
    """Accuracy over the last 50 rounds, and paired differences to FedAvg at the same kind of rates; the best first."""
    found = whole(frame, kind)
    values = {name: last(frame, variant) for name, variant in found.items()}
    base = values.get(BASELINE, {})
    p = holm({name: p_value(own, base) for name, own in values.items() if name != BASELINE})
    rows = []
    for name, variant in found.items():
        theirs = accuracy("table2", DATA, DYNAMICS, algorithm=name)
        row: dict[str, object] = {
            "algorithm": NAMES[name],
            "eta0": rate_of(variant),
            "seeds": len(values[name]),
            "test accuracy": spread(values[name]),
        }
        if kind == "paper":
            row["the paper (32 x 32)"] = "" if theirs is None else f"{theirs.mean} ± {theirs.std}"
        difference = None if name == BASELINE else paired(values[name], base)
        row |= {
            "worst class": spread(over_classes(by_class(frame, variant.label, WINDOW), min)),
            "minus FedAvg (95 %)": interval(difference),
            "pairs": "" if difference is None else len(difference.seeds),
            "p (Holm)": p_text(p.get(name)),
            # Sorted by the paired difference if there is one, because algorithms may have different seeds.
            ORDER: -(mean(values[name]) if difference is None else mean(base) + difference.mean),
        }
        rows.append(row)
    return sorted(rows, key=lambda row: row[ORDER])  # type: ignore[arg-type,return-value]


def models_table(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Accuracies of the same kind of model for all algorithms, and differences to FedAvg."""
    rows = []
    for kind, said in KINDS.items():
        for name, variant in whole(frame, kind).items():
            row: dict[str, object] = {
                "rates": said,
                "algorithm": NAMES[name],
                "eta0": rate_of(variant),
                "seeds": len(last(frame, variant)),
            }
            for evaluate, title in MODELS.items():
                own, base = (last(frame, each, evaluate) for each in (variant, variants(kind)[BASELINE]))
                row[title] = spread(own)
                row[f"{title}: minus FedAvg (95 %)"] = "" if name == BASELINE else interval(paired(own, base))
            rows.append(row)
    return rows


def speed_table(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Table 8: the first round, of every 20th, in which the mean over the complete runs reaches a target."""
    rows = []
    for kind, said in KINDS.items():
        for name, variant in whole(frame, kind).items():
            runs = frame[(frame.label == variant.label) & (frame.status == "complete")]
            curve = 100 * runs[runs["round"] % PERIOD == 0].groupby("round").test_accuracy.mean()
            printed = published()["table8"]["rounds"][DATA].get(name, []) if kind == "paper" else []
            row: dict[str, object] = {
                "rates": said,
                "algorithm": NAMES[name],
                "eta0": rate_of(variant),
                "seeds": runs.seed.nunique(),
            }
            for place, target in enumerate(TARGETS):
                reached = curve[curve >= target].index
                row[f"{target} %"] = str(reached[0]) if len(reached) else "never"
                row[f"{target} %, the paper"] = (printed[place] or "never") if printed else ""
            rows.append(row)
    return rows


def at(frame: pd.DataFrame, variant: Variant, rounds: int) -> BySeed:
    """Percent by seed: the mean over five evaluations 20 rounds apart, up to `rounds`; also of incomplete runs."""
    own = frame[(frame.label == variant.label) & (frame.status != "diverged") & (frame["round"] % PERIOD == 0)]
    own = own[(own["round"] > rounds - BEFORE * PERIOD) & (own["round"] <= rounds)]
    found = own.groupby("seed").test_accuracy.agg(["mean", "size"])
    return {int(str(seed)): 100 * float(row["mean"]) for seed, row in found.iterrows() if row["size"] == BEFORE}


def horizons_table(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Accuracy after several numbers of rounds, at one phase of the availability, and differences to FedAvg."""
    rows = []
    for kind, said in KINDS.items():
        for name, variant in variants(kind).items():
            for rounds in HORIZONS:
                own, base = (at(frame, each, rounds) for each in (variant, variants(kind)[BASELINE]))
                if not own:
                    continue
                difference = None if name == BASELINE else paired(own, base)
                rows.append(
                    {
                        "rates": said,
                        "algorithm": NAMES[name],
                        "eta0": rate_of(variant),
                        "rounds": rounds,
                        "seeds": len(own),
                        "test accuracy": spread(own),
                        "minus FedAvg (95 %)": interval(difference),
                        "pairs": "" if difference is None else len(difference.seeds),
                    }
                )
    return rows


def phases_table(frame: pd.DataFrame) -> list[dict[str, object]]:
    """The effect of the phase of an evaluation: means of the last rounds over seeds, by the phases included."""
    rows = []
    for label, variant in every_variant().items():
        runs = frame[(frame.label == label) & (frame.status == "complete")]
        window = runs[runs["round"] > runs["round"].max() - WINDOW]
        if window.empty:
            continue
        balanced = window[window["round"] > window["round"].max() - 2 * PERIOD]  # every phase twice
        phases = 100 * balanced.groupby(balanced["round"] % PERIOD).test_accuracy.mean()
        rows.append(
            {
                "algorithm": NAMES[variant.name],
                "eta0": rate_of(variant),
                "seeds": window.seed.nunique(),
                "last 50 rounds": f"{100 * window.test_accuracy.mean():.1f}",
                "last 40, every phase twice": f"{100 * balanced.test_accuracy.mean():.1f}",
                "phase 0 alone": f"{phases[0]:.1f}",
                "least phase": f"{phases.min():.1f}",
                "largest phase": f"{phases.max():.1f}",
            }
        )
    return rows


def others_table(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Other dynamics and data at equal rates: accuracy over the last 50 rounds, and differences to FedAvg by rounds."""
    rows: list[dict[str, object]] = []
    for data, dynamics in other_fleets(frame):
        runs, found = of_size(frame, "conv", data, dynamics), variants("equal")
        for name, variant in found.items():
            own, base = (last(runs, each) for each in (variant, found[BASELINE]))
            if not own:
                continue
            theirs = accuracy("table2", data, dynamics, algorithm=name)
            row: dict[str, object] = {
                "data": data,
                "dynamics": dynamics,
                "algorithm": NAMES[name],
                "seeds": len(own),
                "test accuracy": spread(own),
                "the paper, at its rates (32 x 32)": "" if theirs is None else f"{theirs.mean} ± {theirs.std}",
                "last aggregate": spread(last(runs, variant, "latest")),
                "worst class": spread(over_classes(by_class(runs, variant.label, WINDOW), min)),
                "minus FedAvg": "" if name == BASELINE else interval(paired(own, base)),
            }
            for rounds in HORIZONS[:-1]:
                early = paired(at(runs, variant, rounds), at(runs, found[BASELINE], rounds))
                row[f"after {rounds} rounds"] = "" if name == BASELINE else interval(early)
            rows.append(row)
    return rows


def full_table(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Runs in the paper's own settings: accuracy over the last 50 rounds, and differences to FedAvg at two rates."""
    rows = []
    for label, variant in every_variant().items():
        own = last(frame, variant)
        if not own:
            continue
        row: dict[str, object] = {
            "algorithm": NAMES[variant.name],
            "eta0": rate_of(variant),
            "rounds": int(frame[(frame.label == label) & (frame.status == "complete")]["round"].max()),
            "seeds": len(own),
            "test accuracy": spread(own),
            "last aggregate": spread(last(frame, variant, "latest")),
            "worst class": spread(over_classes(by_class(frame, label, WINDOW), min)),
        }
        for base in (variants("paper")[BASELINE], variants("equal")[BASELINE]):
            difference = None if label == base.label else paired(own, last(frame, base))
            row[f"minus FedAvg, eta0 = {rate_of(base)}"] = interval(difference)
        rows.append(row)
    return rows


def search_grid(frame: pd.DataFrame) -> Grid:
    """Validation accuracy in percent by algorithm and pair of rates, over the last 50 rounds and the seeds."""
    preset = presets()["conv"]
    (planned,) = Plan(preset, only=Only(datasets=(DATA,))).search()
    accuracies: dict[str, dict[Rates, float]] = {}
    for variant in planned.variants:
        values = summary(frame, variant.label, "validation_accuracy", WINDOW)
        name = f"{variant.name}, clipped" if variant.options else variant.name
        assert variant.rates is not None
        whole = len(values) == len(planned.seeds)
        accuracies.setdefault(name, {})[variant.rates] = mean(values) if whole else float("nan")
    return Grid("search", "", tuple(sorted(preset.grid)), tuple(sorted(preset.global_grid)), accuracies)


def runs_table(frame: pd.DataFrame) -> list[dict[str, object]]:
    """The runs with their numbers of rounds and their durations."""
    rows: list[dict[str, object]] = []
    for size in ("conv", "paper"):
        for fleet in [(DATA, DYNAMICS), *other_fleets(frame)]:
            for label, variant in every_variant().items():
                runs = of_size(frame, size, *fleet)
                runs = runs[runs.label == label]
                if runs.empty:
                    continue
                ends = runs.sort_values("round").groupby("seed").tail(1)
                how_far = ", ".join(
                    f"seed {one.seed}: {one['round']}" + ("" if one.status == "complete" else f" ({one.status})")
                    for _, one in ends.sort_values("seed").iterrows()
                )
                where = f"{size}, {', '.join(fleet)}"
                rows.append(_cost(where, NAMES[variant.name], rate_of(variant), how_far, ends))
    trials = of_size(frame, "search")
    if not trials.empty:
        ends = trials.sort_values("round").groupby(["label", "seed"]).tail(1)
        how_far = f"{len(ends)} runs of up to {ends['round'].max()}"
        rows.append(_cost(f"search, {DATA}, {DYNAMICS}", "all", "all", how_far, ends))
    return rows


def _cost(where: str, algorithm: str, rate: str, how_far: str, ends: pd.DataFrame) -> dict[str, object]:
    """A row of the table of runs, from the last evaluation of each."""
    seconds = ends.elapsed_seconds.sum()
    return {
        "size, data, dynamics": where,
        "algorithm": algorithm,
        "eta0": rate,
        "rounds of each seed": how_far,
        "hours": f"{seconds / 3600:.1f}",
        "seconds a round": f"{seconds / max(ends['round'].sum(), 1):.2f}",
    }


# Sentences


def short(frame: pd.DataFrame) -> str:
    """Sentences that compare FedAWE with FedAvg, as a list in Markdown."""
    conv, said = of_size(frame, "conv"), []
    for kind, rates in KINDS.items():
        ours, base = (last(conv, variants(kind)[name]) for name in ("fedawe", BASELINE))
        there = f"At {rates} (FedAvg's eta0: {rate_of(variants(kind)[BASELINE])}), after 2000 rounds"
        said.append(f"{there}: {standing(ours, base)}{alike(conv, kind)}")
    for kind, rates in KINDS.items():
        changes = []
        for rounds in HORIZONS:
            ours, base = (at(conv, variants(kind)[name], rounds) for name in ("fedawe", BASELINE))
            difference = paired(ours, base)
            if difference is not None:
                seeds = counted(len(difference.seeds))
                changes.append(f"{interval(difference)} after {rounds} rounds ({seeds})")
        if changes:
            how = "by rounds (five evaluations at one phase of the availability, not all of the last 50 rounds)"
            said.append(f"FedAWE minus FedAvg at {rates}, {how}: {'; '.join(changes)}.")
    for kind, rates in KINDS.items():
        accuracies = {name: values for name, one in variants(kind).items() if (values := last(conv, one))}
        held = orderings([Setting(DYNAMICS, "table2", (DATA, DYNAMICS), {}, accuracies)])
        said.append(f"At {rates}, {held.words().replace('Of', 'of', 1)}")
    slow, fast = (variants(kind)[BASELINE] for kind in ("paper", "equal"))
    gained = paired(last(conv, fast), last(conv, slow))
    if gained is not None:
        rates = f"{rate_of(slow)} to {rate_of(fast)}"
        said.append(f"FedAvg itself changes by {interval(gained)} points when its eta0 goes from {rates}.")
    return "".join(f"- {sentence}\n" for sentence in said)


def alike(frame: pd.DataFrame, kind: RateKind) -> str:
    """A sentence with the same difference when one kind of model is evaluated for both."""
    found = []
    for evaluate, title in MODELS.items():
        ours, base = (last(frame, variants(kind)[name], evaluate) for name in ("fedawe", BASELINE))
        difference = paired(ours, base)
        if difference is not None:
            found.append(f"{interval(difference)} for the {title}")
    return (
        f" That is x-bar against FedAvg's model; with the same kind for both it is {', and '.join(found)}."
        if found
        else ""
    )


def standing(ours: BySeed, base: BySeed) -> str:
    """A sentence that compares FedAWE with FedAvg and gives the interval."""
    difference = paired(ours, base)
    if difference is None:
        return "not compared yet: no seed has both runs."
    points = f"FedAWE is {abs(difference.mean):.1f} points {'ahead of' if difference.mean > 0 else 'behind'} FedAvg"
    if difference.low is None or difference.high is None:
        return f"{points}, with one seed, which says nothing about chance."
    sure = "" if difference.sign else ", so that this may be chance"
    between = f"95 % interval of the difference {difference.low:+.1f} to {difference.high:+.1f}"
    return f"{points} ({counted(len(difference.seeds))}, {between}{sure})."


def counted(seeds: int) -> str:
    """The number of seeds with its noun."""
    return f"{seeds} seed{'' if seeds == 1 else 's'}"


def tables(frame: pd.DataFrame) -> dict[str, str]:
    """All tables and sentences, by the names of their files."""
    conv, full, grid = of_size(frame, "conv"), of_size(frame, "paper"), search_grid(of_size(frame, "search"))
    made: dict[str, list[dict[str, object]]] = {
        **{kind: table2(conv, kind) for kind in KINDS},
        "models": models_table(conv),
        "speed": speed_table(conv),
        "horizons": horizons_table(conv),
        "phases": phases_table(conv),
        "others": others_table(frame),
        "full": full_table(full),
        "runs": runs_table(frame),
    }
    found = {f"{name}.md": markdown(rows) if rows else NOTHING for name, rows in made.items()}
    return {"short.md": short(frame), "search.md": f"{grid.words()}\n\n{grid.table().export('md')}", **found}


# Figure


def curves(frame: pd.DataFrame) -> Figure:
    """Test accuracy against the round: a panel for each kind of rates, thin lines for seeds, thick ones for means.

    Only evaluations after a multiple of 20 rounds are drawn, all at the same phase of the availability. A thick line is
    the mean over seeds and over five evaluations, as in the table of horizons.
    """
    conv = of_size(frame, "conv")
    conv = conv[(conv["round"] % PERIOD == 0) & (conv.status != "diverged")]
    kinds = begun(conv)
    with figure(3.4, columns=len(kinds), sharey=True, size=Size(width=4.0 * len(kinds))) as (made, axes):
        for ax, kind in zip(np.atleast_1d(axes), kinds, strict=True):
            for name, variant in variants(kind).items():
                _draw(ax, conv[conv.label == variant.label], name, variant)
            ax.set(title=KINDS[kind], xlabel="round", xlim=(0, HORIZONS[-1]), ylim=(60, 90))
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        np.atleast_1d(axes)[0].set_ylabel("test accuracy (%)")
    return made


def _draw(ax: Axes, runs: pd.DataFrame, name: str, variant: Variant) -> None:
    """Draw the curves of a variant, if there are any; the mean is over complete runs."""
    if runs.empty:
        return
    look = line(LOOKS[path_of(ALGORITHMS[name])])
    for _, one in runs.groupby("seed"):
        ordered = one.sort_values("round")
        ax.plot(ordered["round"], 100 * ordered.test_accuracy, color=look["color"], linewidth=0.4, alpha=0.35)
    complete = runs[runs.status == "complete"]
    mean_curve = 100 * complete.groupby("round").test_accuracy.mean().rolling(BEFORE).mean().dropna()
    seeds = complete.seed.nunique()
    label = f"{NAMES[name]} ({rate_of(variant)}): " + (counted(seeds) if seeds else "under way")
    ax.plot(mean_curve.index.to_numpy(), mean_curve.to_numpy(), label=label, **{**look, "linewidth": 1.5})


def write_all() -> None:
    """Write tables and figure from the stored evaluations, also to the page."""
    frame = pd.read_csv(KEPT / "evaluations.csv.gz")
    write(KEPT, tables(frame))
    save(curves(frame), PAGES / "conv.svg")


def main() -> None:
    """Read runs if there are arguments, store their evaluations, and write tables and figure."""
    KEPT.mkdir(exist_ok=True)
    if len(sys.argv) > 1:
        path, found = KEPT / "evaluations.csv.gz", read(map(Path, sys.argv[1:]))
        keep([merged(path, found, RUN)], COLUMNS, path)
    write_all()


if __name__ == "__main__":
    main()
