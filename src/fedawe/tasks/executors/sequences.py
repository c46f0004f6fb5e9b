"""Layers of networks that read sequences: embeddings, recurrent layers, attention; and outputs at one position only."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedawe.tasks.executors.program import Function, Node, add

LONG = 256  # positions from which attention is computed piece by piece, which torch cannot do for stacked clients


def embedding(h: Tensor, weight: Tensor, padding: int | None) -> Tensor:
    """The rows of codes h [B, ...]."""
    return functional.embedding(h, weight, padding)


def layer_norm(h: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int], eps: float) -> Tensor:
    """Layer normalisation with its parameters first, as every other layer has them."""
    return functional.layer_norm(h, shape, weight, bias, eps)


def lstm(h: Tensor, *weights: Tensor, hidden: int, layers: int, both: bool, biased: bool) -> Tensor:
    """The output of the last layer at every position of h [B, L, E]; the state begins at zero."""
    if h.shape[-1] != weights[0].shape[1]:  # torch checks this in nn.LSTM only, and would compute a wrong result
        raise RuntimeError(
            f"input.size(-1) must be equal to input_size. Expected {weights[0].shape[1]}, got {h.shape[-1]}"
        )
    zeros = h.new_zeros(layers * (1 + both), len(h), hidden)
    out: Tensor = torch._VF.lstm(h, (zeros, zeros), weights, biased, layers, 0.0, True, both, True)[0]
    return out


def attention(
    queried: Tensor,
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    out_weight: Tensor,
    out_bias: Tensor | None,
    heads: int,
) -> Tensor:
    """Self-attention over h [B, L, E]: at all positions if `queried` is h, or at one if it is that position [B, E]."""
    E, everywhere = h.shape[-1], queried.ndim == h.ndim
    if everywhere:
        q, k, v = functional.linear(h, weight, bias).chunk(3, -1)
    else:
        q = functional.linear(queried, weight[:E], None if bias is None else bias[:E]).unsqueeze(1)
        k, v = functional.linear(h, weight[E:], None if bias is None else bias[E:]).chunk(2, -1)
    q, k, v = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (q, k, v))  # [B, heads, L, E / heads]
    if h.shape[1] > LONG:
        seen = functional.scaled_dot_product_attention(q, k, v)
    else:
        seen = torch.softmax(q * q.shape[-1] ** -0.5 @ k.mT, -1) @ v
    seen = seen.transpose(1, 2).flatten(2)
    return functional.linear(seen if everywhere else seen.squeeze(1), out_weight, out_bias)


def add_parameter(h: Tensor, parameter: Tensor) -> Tensor:
    """The sum of a value and a parameter, such as a learned embedding of positions."""
    return h + parameter


def position(h: Tensor, index: int) -> Tensor:
    """One position of h [B, L, ...]."""
    return h[:, index]


def recurrent(layer: nn.LSTM) -> tuple[list[str], dict[str, Any]] | str:
    """The names of the tensors of an LSTM, and its options; or the reason why it is not computed here."""
    if layer.proj_size or (layer.dropout and layer.num_layers > 1) or not layer.batch_first:
        return "an LSTM has dropout or projections, or is not given sequences [B, L, E]"
    names = [name for group in layer._all_weights for name in group]
    options = {"hidden": layer.hidden_size, "layers": layer.num_layers, "both": layer.bidirectional}
    return names, {**options, "biased": layer.bias}


def encoder(layer: nn.TransformerEncoder) -> list[tuple[Function | nn.Module, tuple[int, ...], str]] | str:
    """The parts of an encoder: functions or layers, the values that they take, and their paths in the module.

    Value 0 is the input of the encoder, and value n + 1 the output of part n. The reason is returned instead
    if the encoder is not computed here.
    """
    parts: list[tuple[Function | nn.Module, tuple[int, ...], str]] = []

    def then(what: Function | nn.Module, of: tuple[int, ...], path: str) -> int:
        parts.append((what, of, path))
        return len(parts)

    h = 0
    for n, one in enumerate(layer.layers):
        if type(one) is not nn.TransformerEncoderLayer or type(one.self_attn) is not nn.MultiheadAttention:
            return f"an encoder is made of a {type(one).__name__}"
        seen = one.self_attn
        if seen.dropout or one.dropout.p or one.dropout1.p or one.dropout2.p:
            return "attention has dropout"
        if not seen.batch_first or seen.in_proj_weight is None or seen.bias_k is not None or seen.add_zero_attn:
            return "attention is not over sequences [B, L, E] of one width"
        at, first = f"layers.{n}", bool(one.norm_first)
        given = then(one.norm1, (h,), f"{at}.norm1") if first else h
        h = then(add, (h, then(seen, (given, given), f"{at}.self_attn")), at)
        given = h = h if first else then(one.norm1, (h,), f"{at}.norm1")
        given = then(one.norm2, (h,), f"{at}.norm2") if first else given
        given = then(one.activation, (then(one.linear1, (given,), f"{at}.linear1"),), at)
        h = then(add, (h, then(one.linear2, (given,), f"{at}.linear2")), at)
        h = h if first else then(one.norm2, (h,), f"{at}.norm2")
    if layer.norm is not None:
        then(layer.norm, (h,), "norm")
    return parts


# Functions of single numbers, or of single vectors of a sequence.
EACH = (torch.relu, torch.tanh, torch.sigmoid, functional.leaky_relu, functional.elu, functional.gelu, functional.silu)
APART = (*EACH, functional.linear, layer_norm, add)


def sequences(nodes: Sequence[Node], inputs: int) -> set[int]:
    """The values that are sequences [B, L, E] as long as the input, where one input has `inputs` dimensions."""
    dimensions: list[int | None] = [inputs]
    for node in nodes:
        given = [dimensions[each] for each in node.inputs]
        same = node.function in (*APART, lstm, attention, add_parameter) and len(set(given)) == 1
        if node.function is layer_norm and len(node.options["shape"]) > 1:
            same = False
        dimensions.append(given[0] if same else 2 if node.function is embedding and given == [1] else None)
    return {value for value, each in enumerate(dimensions) if each == 2}


def one_position_only(nodes: Sequence[Node], inputs: int) -> list[Node]:
    """Nodes that compute the same outputs, but only one position of a sequence where no other position is used.

    The last layer of a transformer then computes one query instead of all, and the layers after it one position.
    `inputs` is the number of dimensions of one input.
    """
    if len({node.options["index"] for node in nodes if node.function is position}) != 1:
        return list(nodes)  # with two positions, some work would be done twice
    apart = sequences(nodes, inputs)
    full: set[int] = set()  # what is needed at all positions in any case
    while True:
        rewriting = _Rewriting(nodes, apart, full)
        rewriting.value(len(nodes), None)
        if rewriting.needed == full:
            return rewriting.nodes
        full = rewriting.needed


class _Rewriting:
    """Builds the nodes anew, from the output back to the input, each for all positions or for one."""

    def __init__(self, old: Sequence[Node], apart: set[int], full: set[int]) -> None:
        self.old, self.apart, self.full, self.needed = old, apart - full, full, set(full)
        self.nodes: list[Node] = []
        self.made: dict[tuple[int, int | None], int] = {(0, None): 0}  # (old value, position or all) -> new value

    def value(self, old: int, at: int | None) -> int:
        """The new value that is the old one at position `at`, or at all positions if it is None."""
        if (old, at) not in self.made:
            self.made[old, at] = self._all(old) if at is None else self._one(old, at)
        return self.made[old, at]

    def _all(self, old: int) -> int:
        node = self.old[old - 1]
        self.needed.add(old)
        if node.function is position:
            return self.value(node.inputs[0], node.options["index"])
        return self._append(node, [self.value(each, None) for each in node.inputs])

    def _one(self, old: int, at: int) -> int:
        node = self.old[old - 1]
        if old in self.apart and node.function in APART:
            return self._append(node, [self.value(each, at) for each in node.inputs])
        if old in self.apart and node.function is attention:
            return self._append(node, [self.value(node.inputs[0], at), self.value(node.inputs[1], None)])
        return self._append(Node(position, (), (), {"index": at}), [self.value(old, None)])

    def _append(self, node: Node, inputs: Sequence[int]) -> int:
        self.nodes.append(replace(node, inputs=tuple(inputs)))
        return len(self.nodes)
