"""The settings of an experiment on the command line: every flag with its default and its help text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fedawe.experiments.flags import File, Number, Numbers, Pair, Whole, Word, hint, one_of, some_of

Augment = Literal["none", "image", "batch"]
Part = Literal["train", "validation", "test"]
STEPS = 10  # if neither steps nor epochs are given
OWN = ("eta0", "clip_grad")  # settings of local training that an algorithm may override, as in fedawe:eta0=0.2


@dataclass(frozen=True)
class Settings:
    """Everything that the runs of one folder share."""

    task: str = "digits"
    """digits (bundled handwritten digits), chars (the next character of Python's documentation), synthetic (as in
    synthetic:alpha=0.5,beta=0.5), quadratic (the paper's Example 1), the path of your own .npz, .csv or .parquet or of
    a folder of LEAF, a data set added with `fedawe data` (svhn, cifar10, cinic10), or a task of your own:
    my.tasks:Text, tasks.py:Text"""
    model: Word = None
    """network: softmax, mlp, cnn, paper (that of the paper), lstm, or your own class or function that builds a
    torch.nn.Module: my.nets:Net, nets.py:Net:width=64 (default: paper for sets of `fedawe data`; lstm for chars;
    softmax for synthetic; mlp for the others)"""
    image_size: Whole = None
    """height and width to which images are shrunk by averaging; a divisor of theirs (default: no shrinking)"""
    dynamics: str = "sine"
    """stationary, staircase, sine, interleaved, markov, cyclic, outages, with options as in sine:gamma=0.2,period=40;
    the path of a recorded trace (.npz or .csv); or dynamics of your own: my.times:Weekend, times.py:Weekend"""
    p: Numbers = ()
    """base probabilities: one for all clients or one for each (default: by the paper's rule from their labels)"""
    clients: Whole = None
    """number of clients (default: that of the data or recorded trace; else 100, 30 for synthetic, 2 for quadratic)"""
    partition: Word = None
    """natural (the data says which client has which sample), dirichlet, iid, or a function (labels, seed) of your own:
    my.parts:by_day, parts.py:by_day (default: natural where the data says it, else dirichlet)"""
    alpha: Number = None
    """parameter of the dirichlet partition; smaller is more uneven (default: 0.1)"""
    validation: Number = None
    """share of every client's samples that is held out, as in 0.1, to choose rates on (default: none)"""
    rounds: Whole = None
    """number of rounds (default: 300, or that of the recorded trace); more than before extends finished runs"""
    round_seconds: Number = None
    """length of a round, for a recorded trace of intervals in seconds"""
    eta0: Number = None
    """local learning rate (default: 0.1; 1 for chars, 0.005 for quadratic); for one algorithm: fedawe:eta0=0.2"""
    schedule: Literal["paper", "constant"] = "paper"
    """learning rate of round t: eta0 / sqrt(t/10 + 1) (paper), or eta0 (constant)"""
    steps: Whole = None
    """local steps per round (default: 10)"""
    epochs: Whole = None
    """passes over a client's own samples in a round, instead of steps: clients with more samples make more steps"""
    optimiser: Word = None
    """optimiser of the clients: sgd:momentum=0.9, adam:lr=0.001, adamw:lr=0.001,weight_decay=0.1; lr is another name
    for eta0 (default: plain SGD)"""
    choose: Word = None
    """ask only some of the available clients: uniform:k=20, longest-absent:k=20, power-of-choice:d=40,k=20, oort:k=20
    (default: all; F3AST's own is f3ast:capacity=20)"""
    aggregate: Word = None
    """robust aggregation instead of the mean over the active clients: trimmed:share=0.1, median, norm-bound:c=1
    (for fedawe, fedavg and fedprox; default: the mean)"""
    batch: Whole = None
    """samples per step; a client that has fewer uses all (default: 128 for sets of `fedawe data`, else 32)"""
    batches: Literal["iid", "epochs"] = "iid"
    """iid: drawn anew in every step; epochs: shuffled epochs that continue over rounds, as in the authors' code"""
    augment: Annotated[Augment | None, hint, one_of(Augment)] = None
    """random crops, and flips except for svhn: for each image, or the same for a whole batch as in the authors' code
    (default: image for sets of `fedawe data`, else none)"""
    clip_grad: Number = None
    """largest norm of a stochastic gradient (default: no limit); for one algorithm: fedawe:clip_grad=0.5"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """precision of local training: bfloat16 rounds the operands of products in forward and backward passes
    (torch.autocast); parameters, updates and evaluations stay float32"""
    evaluate_every: int = 5
    """rounds between two evaluations"""
    evaluate_last: Pair = None
    """evaluate more often at the end: 50 2 means every second round of the last 50 (default: as in other rounds)"""
    evaluate_on: Annotated[tuple[Part, ...], hint, some_of(Part)] = ()
    """the parts of the data on which models are evaluated (default: all that the task has)"""
    evaluate_received: bool = False
    """also evaluate the mean over all clients of the model that each received last (FedAWE's model is this mean)"""
    keep_empty: bool = False
    """keep clients that the partition leaves without data"""
    data: File = None
    """folder of the data sets added with `fedawe data` (default: $FEDAWE_DATA, or the user's cache)"""


def is_recorded(dynamics: str) -> bool:
    """Whether the text names a recorded trace."""
    return Path(dynamics).suffix in (".npz", ".csv")
