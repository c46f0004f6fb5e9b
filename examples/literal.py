"""Algorithm 1 of the paper, literally: every client has its own copy of the model. Slow; tests compare with it."""

from collections.abc import Callable

import torch


def fedawe(
    x0: torch.Tensor,
    m: int,
    active: list[list[int]],
    local: Callable[[int, int, torch.Tensor], torch.Tensor],
    eta_g: float = 1.0,
) -> tuple[list[torch.Tensor], list[int], torch.Tensor]:
    """Returns the model and last active round of every client, and the last aggregate, after the rounds of `active`.

    `local(t, i, x)` returns the model after s steps of SGD of client i in round t from x.
    """
    x = [x0.clone() for _ in range(m)]
    tau = [-1] * m
    aggregate = x0.clone()
    for t, A in enumerate(active):
        reported = []
        for i in A:
            G = x[i] - local(t, i, x[i])
            reported.append(x[i] - eta_g * (t - tau[i]) * G)
        if A:
            aggregate = torch.stack(reported).mean(0)
        for i in range(m):
            if i in A:
                x[i] = aggregate.clone()
                tau[i] = t
    return x, tau, aggregate


if __name__ == "__main__":
    u = torch.tensor([0.0, 100.0], dtype=torch.float64)  # Example 1: F_i(x) = (x - u_i)^2 / 2
    generator = torch.Generator().manual_seed(0)
    # Client 0 is available three times as often.
    available = torch.rand(4000, 2, generator=generator) < torch.tensor([0.9, 0.3])
    rounds = [row.nonzero().flatten().tolist() for row in available]
    held, _, last = fedawe(torch.zeros(1, dtype=torch.float64), 2, rounds, lambda _, i, x: x - 0.01 * (x - u[i]))
    print(f"x-bar {float(sum(held)) / 2:.1f}, last aggregate {float(last):.1f}, optimum {float(u.mean()):.1f}")
