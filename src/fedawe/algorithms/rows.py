"""Vectors that are kept for some of the clients: client -> row [d]. The row of every other client counts as zero."""

from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

Rows = Annotated[Mapping[int, Tensor], "one row for each client that was active"]


def rows_of(kept: Rows, A: Tensor, like: Tensor) -> Tensor:
    """The rows of the clients A [k], [k, d]; `like` is a vector [d]."""
    nothing = torch.zeros_like(like)
    rows = [kept.get(i, nothing) for i in A.tolist()]
    return torch.stack(rows) if rows else like.new_empty((0, len(like)))


def with_rows(kept: Rows, A: Tensor, rows: Tensor) -> Rows:
    """The rows, with new ones [k, d] for the clients A [k]; copies, so that the memory of `rows` can be freed."""
    return {**kept, **{i: row.clone() for i, row in zip(A.tolist(), rows, strict=True)}}
