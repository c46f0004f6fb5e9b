"""A small recurrent network that reads characters."""

from functools import partial

from torch import Tensor, nn

from fedawe.tasks.module import ModuleNetwork

EMBEDDED, HIDDEN = 16, 64


class CharacterLSTM(nn.Module):
    """Codes [B, L] -> logits of the next code after every position [B, L, codes], or after the last one [B, codes]."""

    def __init__(self, codes: int, every: bool) -> None:
        super().__init__()
        self.every = every
        self.embedding = nn.Embedding(codes, EMBEDDED)
        self.lstm = nn.LSTM(EMBEDDED, HIDDEN, batch_first=True)
        self.output = nn.Linear(HIDDEN, codes)

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits."""
        hidden = self.lstm(self.embedding(inputs))[0]
        out: Tensor = self.output(hidden if self.every else hidden[:, -1])
        return out


def mean_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per sample, [B]: the mean over its positions where it has several."""
    loss = nn.functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
    return loss.flatten(1).mean(1) if loss.ndim > 1 else loss


def lstm(codes: int, every: bool) -> ModuleNetwork:
    """The network, with a label at every position or one for the whole text."""
    return ModuleNetwork(partial(CharacterLSTM, codes, every), mean_cross_entropy)
