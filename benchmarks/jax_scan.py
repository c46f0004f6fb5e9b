"""The MLP of the benchmark by a jitted JAX scan, as somebody who knows JAX would write it; a process of its own.

All clients of a round under vmap, their steps in one scan, the average in the same compiled function; batches are drawn
by numpy as shuffled epochs, vectorised over the clients.

usage: python benchmarks/jax_scan.py ACTIVE STEPS BATCH SAMPLES SECONDS
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from turns import serve

Tree = dict[str, Any]
CLIENTS, FEATURES, HIDDEN, CLASSES = 100, 64, 64, 10


def loss(w: Tree, x: Any, y: Any) -> Any:
    """Mean cross-entropy."""
    h = jax.nn.relu(x @ w["w1"] + w["b1"])
    return -jnp.take_along_axis(jax.nn.log_softmax(h @ w["w2"] + w["b2"]), y[:, None], 1).mean()


def train(w: Tree, x: Any, y: Any, rows: Any) -> Any:
    """One round: rows [k, s, B] of the samples; the mean of the clients' models."""

    def client(rows: Any) -> Any:
        def step(w: Tree, at: Any) -> tuple[Tree, None]:
            g = jax.grad(loss)(w, x[at], y[at])
            return jax.tree.map(lambda a, b: a - 0.05 * b, w, g), None

        return jax.lax.scan(step, w, rows)[0]

    return jax.tree.map(lambda a: a.mean(0), jax.vmap(client)(rows))


def main() -> None:
    """Serves turns until standard input ends."""
    active, steps, batch, samples = map(int, sys.argv[1:5])
    seconds, draw = float(sys.argv[5]), np.random.default_rng(0)
    x = jnp.asarray(draw.standard_normal((CLIENTS * samples, FEATURES), dtype=np.float32))
    y = jnp.asarray(draw.integers(CLASSES, size=CLIENTS * samples))
    shape = {"w1": (FEATURES, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES), "b2": (CLASSES,)}
    w = {name: jnp.asarray(0.1 * draw.standard_normal(size, dtype=np.float32)) for name, size in shape.items()}
    epochs, compiled = -(-steps // (samples // batch)), jax.jit(train)

    def rows() -> Any:
        clients = draw.choice(CLIENTS, active, replace=False)
        orders = draw.permuted(np.tile(np.arange(samples), (active * epochs, 1)), axis=1)
        kept = orders[:, : samples // batch * batch].reshape(active, -1, batch)[:, :steps]
        return kept + clients[:, None, None] * samples

    def work() -> int:
        nonlocal w
        w = compiled(w, x, y, jnp.asarray(rows()))
        for each in w.values():
            each.block_until_ready()
        return active * steps

    work()
    serve(seconds, work)


if __name__ == "__main__":
    main()
