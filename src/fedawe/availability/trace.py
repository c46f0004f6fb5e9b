"""The trace: which clients are available in which round. All algorithms of a comparison share one trace."""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedawe.availability.csv import check_no_seconds, read_csv, to_csv
from fedawe.availability.drawn import Drawn
from fedawe.availability.dynamics import Array, Dynamics, Mask, as_probabilities
from fedawe.core.errors import UserError
from fedawe.core.files import brief, existing_file, read_npz, write_atomically
from fedawe.core.memory import check_room

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KEPT = 2**25  # entries; a drawn trace with more is not kept in memory and files, but drawn round by round


class Trace:
    """Availability of m clients over T rounds, `on` [T, m] bool; p [T, m], the probabilities of availability, if known.

    A client is available for the whole of a round or not at all. NaN in `on` stands for unknown availability: `known`
    [T, m] is then False, the audit omits such entries from rates, and a run treats the client as unavailable. A drawn
    trace of more than 2**25 entries is not kept in memory: `row` and `active` draw the round that is asked for, and
    `on` draws all rounds.

    >>> trace = Trace([[True, False, True], [False, False, False]])
    >>> trace.active(0), trace.active(1)
    (tensor([0, 2]), tensor([], dtype=torch.int64))
    >>> trace
    Trace of 3 clients over 2 rounds: 33.3% available, 1 empty round, 1 client never available
    """

    def __init__(self, on: Any, p: Any = None) -> None:
        self.known: Mask | None  # None: all entries are known
        self._on: Mask | None  # None: drawn round by round
        self._on, self.known = _as_masks(on)
        self._on.flags.writeable = False
        self._shape: tuple[int, int] = (len(self._on), self._on.shape[1])
        self._p = None if p is None else self._checked(p)
        self._drawn: Drawn | None = None  # how the trace was drawn, if it was

    @classmethod
    def _of(cls, drawn: Drawn) -> "Trace":
        trace = cls.__new__(cls)
        trace._drawn, trace._shape, trace._on = drawn, drawn.shape, None
        trace.known = trace._p = None
        if trace.kept:
            trace._on = drawn.whole()
            trace._on.flags.writeable = False
        return trace

    @property
    def kept(self) -> bool:
        """Whether the trace is kept in memory and in files; large drawn traces are not."""
        return self._on is not None or self.rounds * self.clients <= KEPT

    @property
    def on(self) -> Mask:
        """Whether each client is available in each round, [T, m]; rounds drawn on demand are all drawn and kept now."""
        if self._on is None:
            assert self._drawn is not None
            self._check_room(1)
            self._on = self._drawn.whole()
            self._on.flags.writeable = False
        return self._on

    def row(self, t: int) -> Mask:
        """Whether each client is available in round t, [m]."""
        if not 0 <= t < self.rounds:
            raise UserError(f"the trace has rounds 0 to {self.rounds - 1}, but round {t} was asked for")
        if self._on is None:
            assert self._drawn is not None
            return self._drawn.row(t)
        row: Mask = self._on[t]
        return row

    def _check_room(self, size: int) -> None:
        what = f"a trace of {self.rounds:,} rounds of {self.clients:,} clients as one table"
        check_room(what, size * self.rounds * self.clients, "use fewer rounds or clients, or ask round by round (row)")

    def _checked(self, given: Any) -> Array:
        try:
            p: Array = np.array(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise UserError(f"p must be probabilities [rounds, clients] ({brief(error)})") from None
        if p.shape != self._shape:
            raise UserError(f"p has the shape {list(p.shape)}, the trace {list(self._shape)}")
        if not ((p >= 0) & (p <= 1)).all():  # also refuses NaN
            raise UserError("p has entries that are not in [0, 1]")
        p.flags.writeable = False
        return p

    @property
    def p(self) -> Array | None:
        """The probabilities of availability [T, m], if known; computed on demand: they are 8 times as large as `on`."""
        if self._p is None and self._drawn is not None:
            self._check_room(3 * 8)  # they are computed, checked and kept
            self._p = self._checked(self._drawn.probabilities())
        return self._p

    @property
    def probabilities(self) -> Any:
        """p for an algorithm that needs one round at a time: an array, or a table whose rows are computed on demand.

        None if the probabilities are not known.
        """
        return self.p if self.kept else self._drawn

    @property
    def knows_p(self) -> bool:
        """Whether the probabilities of availability are known."""
        return self._p is not None or self._drawn is not None

    def described(self) -> dict[str, Any]:
        """The fields that describe the trace: its size, and checksums of availability and probabilities.

        For large drawn traces the checksum of availability suffices, because other probabilities draw another trace.
        """
        on = hashlib.sha256(np.packbits(self.on, axis=1).tobytes()).hexdigest()[:16]
        p = {"p": self.p} if self.knows_p and self.kept else {}
        return {"rounds": self.rounds, "clients": self.clients, "sha256": on, **p}

    def rates(self) -> Array:
        """The share of rounds in which each client is available, [m]; an estimate for traces drawn round by round."""
        if self._on is None:
            assert self._drawn is not None
            return self._drawn.rates
        return np.asarray(self._on.mean(0))

    def known_rounds(self) -> Array:
        """The number of rounds in which it is known whether each client is available, [m]."""
        return np.full(self.clients, float(self.rounds)) if self.known is None else self.known.sum(0, dtype=np.float64)

    def most_available(self) -> int:
        """The largest number of available clients in a round; an estimate for traces drawn round by round."""
        if self._on is None:
            assert self._drawn is not None
            return self._drawn.most
        return int(self._on.sum(1).max())

    def ever_available(self, enough: int) -> int:
        """The number of clients that are available in at least one round.

        For a trace that is drawn round by round, counting stops when the number exceeds `enough`.
        """
        if self._on is not None:
            return int(self._on.any(0).sum())
        ever = np.zeros(self.clients, dtype=bool)
        for t in range(self.rounds):
            ever |= self.row(t)
            if t % 64 == 0 and ever.sum() > enough:
                break
        return int(ever.sum())

    @classmethod
    def draw(cls, dynamics: Dynamics, p: Any, rounds: int, seed: int) -> "Trace":
        """Draw a trace. Round t depends on (seed, t) alone, so a shorter trace is a prefix of a longer one."""
        if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer) or rounds < 1:
            raise UserError(f"rounds must be a whole number from 1, not {rounds!r}")
        return cls._of(Drawn(dynamics, as_probabilities(p), int(rounds), seed))

    @property
    def rounds(self) -> int:
        """The number of rounds T."""
        return self._shape[0]

    @property
    def clients(self) -> int:
        """The number of clients m."""
        return self._shape[1]

    def active(self, t: int) -> torch.Tensor:
        """The clients that are available in round t, in increasing order, [k] int64."""
        return torch.from_numpy(np.flatnonzero(self.row(t)))

    def first(self, rounds: int) -> "Trace":
        """The trace of the first rounds."""
        if not 1 <= rounds <= self.rounds:
            raise UserError(f"the trace has {self.rounds} rounds, but {rounds} were asked for")
        if self._on is None:
            assert self._drawn is not None
            return Trace._of(self._drawn.first(rounds))
        part = Trace(self.on[:rounds], None if self._p is None else self._p[:rounds])
        part._drawn = None if self._drawn is None else self._drawn.first(rounds)
        if self.known is not None and not self.known[:rounds].all():
            part.known = self.known[:rounds]
        return part

    def knowing(self, known: Mask) -> "Trace":
        """The same trace, in which only the entries `known` [T, m] are known; the others count as unavailable."""
        if known.shape != self._shape or known.dtype != bool:
            raise UserError(f"known must be booleans {list(self._shape)}, not {known.dtype} {list(known.shape)}")
        part = Trace(self.on & known, self._p)
        part._drawn = self._drawn
        part.known = None if known.all() else known
        return part

    def echoes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """t - tau_i(t), the staleness of the client's model, for all available clients of all rounds, in order of t."""
        entries = int(np.count_nonzero(self.on))
        check_room(f"the echoes of {entries:,} entries of a trace", 48 * entries, "take fewer rounds (Trace.first)")
        clients, rounds = np.nonzero(self.on.T)  # client by client, each in order of time
        gaps = np.diff(rounds, prepend=-1)
        new = np.diff(clients, prepend=-1) > 0  # a client's first round: it was never available before
        gaps[new] = rounds[new] + 1
        return gaps[np.lexsort((clients, rounds))]

    def arrays(self) -> dict[str, Any]:
        """The arrays of an .npz file of the trace."""
        found = {"on": self.on, "p": self.p, "known": self.known}
        return {name: array for name, array in found.items() if array is not None}

    def save(self, path: str | Path) -> None:
        """Write the trace: .npz also has p and `known`, .csv has one `round,client` line for each available client."""
        path = Path(path)
        if path.suffix == ".npz":
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **self.arrays())
            write_atomically(path, buffer.getvalue())
        elif path.suffix == ".csv" and self.known is not None:
            raise UserError(f"{path}: .csv cannot store unknown availability, which this trace has; use .npz")
        elif path.suffix == ".csv":
            write_atomically(path, to_csv(self.on).encode())
        else:
            raise UserError(f"{path}: a trace is written as .npz or .csv, not {path.suffix or 'without a suffix'}")

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        round_seconds: float | None = None,
        rounds: int | None = None,
        clients: int | None = None,
    ) -> "Trace":
        """Read .npz (`on` [T, m] of 0 and 1, optionally `p` and `known`) or .csv.

        A CSV has a header and either `round,client` lines or `client,start,end` intervals in seconds [start, end). For
        intervals, `round_seconds` is the length of a round, and a client is available in the rounds that begin in one
        of its intervals. `rounds` and `clients` give the size of the trace if the file does not; without `clients`, the
        clients of a file of intervals are the numbers in the file, in increasing order.
        """
        path = existing_file(Path(path))
        if path.suffix == ".csv":
            return cls(read_csv(path, round_seconds, rounds, clients))
        if path.suffix != ".npz":
            raise UserError(f"{path}: a trace is a .npz or .csv file")
        check_no_seconds(path, round_seconds)
        arrays = read_npz(path)
        if "on" not in arrays:
            raise UserError(f"{path}: has no array 'on' [rounds, clients], only {sorted(arrays) or 'nothing'}")
        try:
            trace = cls(arrays["on"], arrays.get("p"))
            return trace if "known" not in arrays else trace.knowing(arrays["known"])
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def __repr__(self) -> str:
        if self._on is None:
            return (
                f"Trace of {_counted(self.clients, 'client')} over {_counted(self.rounds, 'round')}, drawn round by "
                f"round: {self.rates().mean():.1%} available on average"
            )
        empty, never = int((~self.on.any(1)).sum()), int((~self.on.any(0)).sum())
        share = self.on.mean() if self.known is None else self.on.sum() / max(int(self.known.sum()), 1)
        unknown = "" if self.known is None else f", {1 - self.known.mean():.1%} unknown"
        return (
            f"Trace of {_counted(self.clients, 'client')} over {_counted(self.rounds, 'round')}: {share:.1%} available"
            f"{unknown}, {_counted(empty, 'empty round')}, {_counted(never, 'client')} never available"
        )

    def _repr_html_(self) -> str:
        """HTML with a picture of the trace, for notebooks."""
        from fedawe.availability.stripes import stripes

        return stripes(self.on, self.known, repr(self))

    def plot(self, ax: "Axes | None" = None, clients: Sequence[int] | None = None) -> "Axes":
        """Plot the trace as in the paper's figure 6: one row per client, dark where it is available."""
        from matplotlib import pyplot

        if ax is None:
            _, ax = pyplot.subplots(figsize=(8, 3), layout="constrained")
        shown = list(range(self.clients)) if clients is None else list(clients)
        ax.imshow(self.on[:, shown].T, aspect="auto", interpolation="nearest", cmap="Greys", vmin=0, vmax=1.3)
        ax.set_xlabel("round")
        ax.set_ylabel("client")
        if len(shown) <= 20:
            ax.set_yticks(range(len(shown)), [str(i) for i in shown])
        return ax


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _as_masks(on: Any) -> tuple[Mask, Mask | None]:
    """The masks of availability and of known entries; the second is None if all entries are known."""
    try:
        values = np.asarray(on.detach().cpu() if isinstance(on, torch.Tensor) else on)
    except ValueError:
        raise UserError("a trace is a table [rounds, clients]; the rows received have different lengths") from None
    if values.ndim != 2 or 0 in values.shape:
        raise UserError(f"a trace is a table [rounds, clients] with at least one of each, not {list(values.shape)}")
    known: Mask | None = None
    if values.dtype.kind == "f" and np.isnan(values).any():
        known, values = ~np.isnan(values), np.nan_to_num(values, nan=0.0)
    if values.dtype != bool and (values.dtype.kind not in "iuf" or not np.isin(values, (0, 1)).all()):
        raise UserError(
            f"a trace has only 0 and 1, and NaN where it is unknown; received {values.dtype} with other values"
        )
    return values.astype(bool), known
