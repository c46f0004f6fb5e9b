"""LSTMs by kernels of this package, for one client on a CPU, in float32.

The contribution of the input to the gates is computed for all steps at once. Where the input is an embedding, the
contribution depends on the code alone, and is computed once for every code. Where only one position of the output is
used, no later step is computed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fedawe.tasks.executors.kernels.vectors import LANES
from fedawe.tasks.executors.products import addresses, product
from fedawe.tasks.executors.program import Node, Program
from fedawe.tasks.executors.sequences import embedding, lstm, position

BLOCK = 64  # samples times steps whose errors stay in a near cache
PART = 128  # samples computed at once where no gradient is wanted: kernels always store what a gradient would need


class Recurrent(torch.autograd.Function):
    """The states [L, B, H] of one layer, or without `every` only the last [B, H]; the state begins at zero.

    The input of sample b at step t is rows[which[t, b]]. With `table` a row may be the input of many; without, `which`
    is 0, 1, and so on.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        which: Tensor,
        w_input: Tensor,
        w_state: Tensor,
        every: bool,
        table: bool,
        *biases: Tensor,
    ) -> Tensor:
        from fedawe.tasks.executors.kernels import recurrence as kernels  # LLVM is loaded when it is first needed

        (L, B), H, rows, w_state = which.shape, w_state.shape[1], rows.contiguous(), w_state.contiguous()
        inputs = product(rows, w_input.t().contiguous(), rows.stride(), len(rows))
        if biases:
            inputs += biases[0] + biases[1]
        packed, kept = torch.empty_like(w_state), rows.new_empty(L, B, kernels.KEPT * H)
        h, cells = rows.new_empty(2, 1 + L, B, H)
        kernels.pack(H)(*addresses(w_state, packed))
        run = kernels.forward(H, min(B, kernels.TILE))
        run(*addresses(inputs, packed, h, cells, kept, which), L, B)
        ctx.save_for_backward(rows, which, w_input, w_state, h, cells, kept)
        ctx.every, ctx.table, ctx.biased = every, table, bool(biases)
        out: Tensor = h[1:] if every else h[L]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        from fedawe.tasks.executors.kernels import recurrence as kernels

        rows, which, w_input, w_state, h, cells, kept = ctx.saved_tensors
        (L, B), (N, E), (G, H), (every, table) = which.shape, rows.shape, w_state.shape, (ctx.every, ctx.table)
        empty, W, steps = w_state.new_empty, kernels.width(H), min(L, max(1, BLOCK // B))
        g = g if g.stride(-1) == 1 else g.contiguous()
        gh, gc, gw = empty(B, H), empty(B, H), empty(G, H)
        if not every:
            gh.copy_(g)
        errors, gi = empty((steps if table else L) * B, W), empty(N if table else 0, W)
        run = kernels.backward(H, min(B, kernels.samples(H)), every, table)
        arrays = addresses(g, w_state, h, cells, kept, errors, gh, gc, gw, gi, which)
        run(*arrays, L, B, steps, N, *(g.stride()[:2] if every else (0, 0)))
        errors = (gi if table else errors)[:, :G]
        w_error = product(rows, errors, (1, E), E).t()
        b_error = product(rows.new_ones(1), errors, (0, 0), 1).view(G) if ctx.biased else None
        x_error = product(errors, _padded(w_input), errors.stride(), N)[:, :E] if ctx.needs_input_grad[0] else None
        return x_error, None, w_error, gw, None, None, *([b_error] * 2 if ctx.biased else [])


def _padded(w: Tensor) -> Tensor:
    """w [G, E] with columns of zeros until there are whole vectors."""
    return functional.pad(w, (0, -w.shape[1] % LANES))


def kernel_lstm(
    h: Tensor, *weights: Tensor, hidden: int, layers: int, both: bool, biased: bool, index: int | None = None
) -> Tensor:
    """`lstm` of h [B, L, E], or only the position `index` of its output."""
    options: dict[str, Any] = {"hidden": hidden, "layers": layers, "both": both, "biased": biased}
    fits = h.ndim == 3 and h.dtype == weights[0].dtype and h.shape[2] == weights[0].shape[1]
    if not fits or not h.numel():
        out = lstm(h, *weights, **options)
        return out if index is None else position(out, index)
    if _in_parts(h):
        return torch.cat([kernel_lstm(part, *weights, **options, index=index) for part in h.split(PART)])
    rows = _needed(h, index).flatten(0, 1)
    which = torch.arange(len(rows)).view(-1, len(h))
    return _layers(rows, which, weights, layers, biased, every=index is None, table=False)


def embedded_lstm(
    codes: Tensor, rows: Tensor, *weights: Tensor, padding: int | None, index: int | None = None, **options: Any
) -> Tensor:
    """`kernel_lstm` of the embedding of codes [B, L], in which code n has the vector rows[n]."""
    few = codes.ndim == 2 and len(rows) <= codes.numel() and rows.shape[1] == weights[0].shape[1]
    if not few or int(codes.min()) < 0 or int(codes.max()) >= len(rows):
        return kernel_lstm(embedding(codes, rows, padding), *weights, **options, index=index)
    if _in_parts(codes):
        parts = [
            embedded_lstm(part, rows, *weights, padding=padding, index=index, **options) for part in codes.split(PART)
        ]
        return torch.cat(parts)
    if padding is not None:
        rows = embedding(torch.arange(len(rows)), rows, padding)  # the row of the padding has no gradient
    which = _needed(codes, index).to(torch.int64).contiguous()
    return _layers(rows, which, weights, options["layers"], options["biased"], every=index is None, table=True)


def _in_parts(h: Tensor) -> bool:
    """Whether samples are computed in parts, to save memory: where no gradient is wanted."""
    return not torch.is_grad_enabled() and len(h) > PART


def _needed(h: Tensor, index: int | None) -> Tensor:
    """The steps of h [B, L, ...] that a position depends on, by step first."""
    return (h if index is None else h[:, : range(h.shape[1])[index] + 1]).transpose(0, 1)


def _layers(
    rows: Tensor, which: Tensor, weights: Sequence[Tensor], layers: int, biased: bool, every: bool, table: bool
) -> Tensor:
    """The output of the last layer, [B, L, H] or at the last step [B, H]; the input of the first is rows[which]."""
    each = 4 if biased else 2
    for n in range(layers):
        w_input, w_state, *biases = weights[n * each : (n + 1) * each]
        computed: Any = Recurrent.apply
        h: Tensor = computed(rows, which, w_input, w_state, every or n < layers - 1, table, *biases)
        if n < layers - 1:
            rows, which, table = h.flatten(0, 1), torch.arange(which.numel()).view(which.shape), False
    return h.transpose(0, 1) if every else h


def by_kernels(program: Program) -> Program | None:
    """The program with the LSTMs for which there are kernels computed by these; None if there are none.

    An embedding before an LSTM, and the use of one position after it, are joined with it.
    """
    nodes, users = program.nodes, program.users
    ends: dict[int, Node] = {}  # the number of the last of the nodes that are joined -> what takes their place
    absorbed: set[int] = set()
    for n, node in enumerate(nodes):
        if node.function is not lstm or node.options["both"] or node.options["hidden"] % LANES:
            continue
        own, end, after = replace(node, function=kernel_lstm), n, users.get(n + 1, [])
        if len(after) == 1 and nodes[after[0]].function is position:
            own, end = replace(own, options={**own.options, **nodes[after[0]].options}), after[0]
            absorbed.add(n)
        source = node.inputs[0] - 1
        if source >= 0 and nodes[source].function is embedding and users[source + 1] == [n]:
            first = nodes[source]
            options = {**own.options, **first.options}
            own = Node(embedded_lstm, first.inputs, (*first.tensors, *own.tensors), options)
            absorbed.add(source)
        ends[end] = own
    return program.replaced(ends, absorbed) if ends else None
