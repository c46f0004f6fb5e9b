"""FedPBC (Xiang, Ioannidis, Yeh, Joe-Wong and Su 2023, arXiv:2306.00280), the predecessor of FedAWE."""

from dataclasses import dataclass

from torch import Tensor

from fedawe.algorithms.base import check_clip, clipped, first_model, known_clients, received
from fedawe.algorithms.exchange import Broadcast
from fedawe.algorithms.notebook import Shown
from fedawe.algorithms.versions import Versions


@dataclass(frozen=True)
class FedPBC(Shown):
    """FedPBC (Xiang, Ioannidis, Yeh, Joe-Wong and Su 2023, arXiv:2306.00280), the predecessor of FedAWE.

    Every client trains in every round from its own model, available or not; only the active clients are averaged.

        x_i <- x_i - G_i                              for all i, in every round
        x^{t+1} = (1/|A|) sum_A x_i                   A, and only A, receive x^{t+1}: postponed broadcast

    The work of an unavailable client is not needed before it is active again, so it is computed then: a client that is
    active in round t does t - tau_i rounds of work, each with the batches and the learning rate of its own round.
    FedAWE instead multiplies the innovation of one round by t - tau_i; with constant gradients both are the same.
    `model` is the mean over all clients of the model that each received last. The paper's mean of the current local
    models would need the work of unavailable clients.

    >>> import torch
    >>> fedpbc = FedPBC()
    >>> state = fedpbc.init(torch.zeros(1), m=2)
    >>> state = fedpbc.aggregate(state, 0, torch.tensor([0]), torch.ones(1, 1))
    >>> fedpbc.broadcast(state, 1, torch.tensor([0, 1])).rounds
    tensor([1, 2])
    """

    name = "FedPBC"
    keeps = "the versions that clients hold and one integer per client"
    received_mean = True

    clip: float | None = None

    def __post_init__(self) -> None:
        check_clip(self.clip)

    @property
    def linear(self) -> bool:
        """Whether the model is linear in the innovations; a clip is not."""
        return self.clip is None

    def init(self, x0: Tensor, m: int) -> Versions:
        """x_i = x^0 for every client."""
        return Versions.of(first_model(x0, m), m)

    def start(self, state: Versions, A: Tensor) -> Tensor:
        """The model that each client received last, [k, d]."""
        return state[A]

    def broadcast(self, state: Versions, t: int, A: Tensor) -> Broadcast:
        """The models at which clients A begin, and the numbers of rounds of work to do."""
        return Broadcast(state[A], rounds=t - state.tau[known_clients(A, state)])

    def aggregate(self, state: Versions, t: int, A: Tensor, G: Tensor) -> Versions:
        """The mean over A of the local models, which A receive."""
        A, G = received(state, t, A, G)
        return state.after(t) if len(A) == 0 else state.advance(t, A, state.mean(A) - clipped(G.mean(0), self.clip))

    def model(self, state: Versions) -> Tensor:
        """The mean over all clients of the model that each received last, [d]."""
        return state.mean()

    def also(self, state: Versions) -> dict[str, Tensor]:
        """The last aggregate."""
        return {"latest": state.latest}
