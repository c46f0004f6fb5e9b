"""Which of their samples clients use in every step: drawn by name, for all clients of a group at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedawe.core.rng import streams
from fedawe.tasks.base import Work
from fedawe.tasks.parts import Indices, Parts

HELD = 2**21  # the largest total length of the permutations that are kept for the next round


class Sampling:
    """Client i has the samples `parts[i]`. A client with no more samples than a batch uses them all in every step.

    "iid": samples are drawn with replacement under the name (seed, "batch", t, client). "epochs": samples are taken
    from permutations, drawn under the names (seed, "epoch", client, epoch), which continue from round to round; the
    short last batch of an epoch is dropped.
    """

    def __init__(self, parts: Sequence[Indices]) -> None:
        found = Parts.of(parts)
        self.sizes, self.order, self.offsets = found.sizes, found.order, found.offsets
        self.largest = int(self.sizes.max())
        self.permutations: dict[tuple[int, int, int], Indices] = {}  # (seed, client, epoch) -> order of its samples
        self.held = 0  # the total length of these permutations

    def __getstate__(self) -> dict[str, Any]:
        """The state without the permutations, which another process can draw again."""
        return {**self.__dict__, "permutations": {}, "held": 0}

    def rows(self, work: Work) -> tuple[Indices, Indices]:
        """The samples of each client in every step [s, k, B], and how many of the B are real [k]; the rest is 0.

        The width B depends on all clients of the task, and not on which of them are in this group.
        """
        clients, k = work.A.numpy(), len(work.A)
        n, width = self.sizes[clients], min(work.size, self.largest)
        steps = [work.steps_of(row) for row in range(k)]
        own = np.zeros((k, work.steps, width), dtype=np.int64)  # numbered from the first sample of a client
        own[:] = np.arange(width)
        many = np.flatnonzero(n > work.size).tolist()
        if work.rule == "iid":
            named = streams(work.seed, "batch", work.t, last=clients[many].tolist())
            for row, generator in zip(many, named, strict=True):
                own[row, : steps[row]] = generator.integers(n[row], size=(steps[row], work.size))
        else:
            self._epochs(own, many, steps, work)
        real = np.minimum(n, width)
        at = self.offsets[clients][:, None, None] + own
        padding = np.arange(width) >= real[:, None, None]
        if work.counts is not None:
            padding = padding | (np.arange(work.steps)[:, None] >= work.counts.numpy()[:, None, None])
        if padding.any():
            at[np.broadcast_to(padding, at.shape)] = 0
            rows = np.where(padding, 0, self.order[at])
        else:
            rows = self.order[at]
        return np.ascontiguousarray(rows.transpose(1, 0, 2)), real

    def _epochs(self, own: Indices, many: list[int], steps: Sequence[int], work: Work) -> None:
        """Fills in the samples of the clients in these rows, [steps, size] each."""
        clients, visits, size = work.A.tolist(), work.visits.tolist(), work.size
        per_epoch = {row: int(self.sizes[clients[row]]) // size for row in many}
        first = {row: visits[row] * steps[row] // per_epoch[row] for row in many}
        last = {row: (visits[row] * steps[row] + steps[row] - 1) // per_epoch[row] for row in many}
        wanted = [(clients[row], epoch) for row in many for epoch in range(first[row], last[row] + 1)]
        new = [(i, epoch) for i, epoch in wanted if (work.seed, i, epoch) not in self.permutations]
        for (i, epoch), generator in zip(new, streams(work.seed, "epoch", last=new), strict=True):
            self.permutations[work.seed, i, epoch] = generator.permutation(self.sizes[i])
            self.held += int(self.sizes[i])
        for row in many:
            i, begin = clients[row], visits[row] * steps[row] - first[row] * per_epoch[row]
            whole = per_epoch[row] * size
            pieces = [self.permutations[work.seed, i, epoch][:whole] for epoch in range(first[row], last[row] + 1)]
            own[row, : steps[row]] = np.concatenate(pieces)[begin * size :][: steps[row] * size].reshape(-1, size)
            for epoch in range(first[row], last[row]):  # the last epoch continues in the next round
                self.held -= len(self.permutations.pop((work.seed, i, epoch)))
        if self.held > HELD:
            self.permutations, self.held = {}, 0
