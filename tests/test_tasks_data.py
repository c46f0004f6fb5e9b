"""Images made smaller: each new pixel is the mean of a square of old ones."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedawe.core.errors import UserError
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.tasks import Data, digits

MEAN, STD = (0.5, 0.25, 0.1), (0.2, 0.5, 1.0)


def stored(n: int, side: int, seed: int = 0, channels: int = 3) -> Data:
    """Images as `fedawe data` keeps them."""
    draw = np.random.default_rng(seed)
    x = [torch.from_numpy(draw.integers(0, 256, (k, side, side, channels), dtype=np.uint8)) for k in (n, 2)]
    return Data("mine", x[0], torch.arange(n) % 3, x[1], torch.tensor([0, 1]), MEAN[:channels], STD[:channels])


def naive(images: Tensor, size: int) -> Tensor:
    """[n, height, width, channels] of bytes -> [n, channels, size, size], pixel by pixel."""
    n, side, _, channels = images.shape
    k, out = side // size, torch.zeros(n, channels, size, size, dtype=torch.float64)
    for i in range(n):
        for c in range(channels):
            for row in range(size):
                for column in range(size):
                    square = images[i, row * k : (row + 1) * k, column * k : (column + 1) * k, c].tolist()
                    values = [(v / 255 - MEAN[c]) / STD[c] for line in square for v in line]
                    out[i, c, row, column] = sum(values) / k**2
    return out


@settings(max_examples=25)
@given(size=st.integers(1, 4), times=st.integers(1, 3), channels=st.integers(1, 3), seed=st.integers(0, 1000))
def test_a_pixel_is_the_mean_of_a_square(size: int, times: int, channels: int, seed: int) -> None:
    data = stored(3, size * times, seed, channels)
    small = data.shrunk(size)
    assert small.shape == (channels, size, size)
    for ours, images in ((small.x_train, data.x_train), (small.x_test, data.x_test)):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), naive(images, size), rtol=0, atol=1e-5)
    # They are looked at as they are: not scaled a second time.
    assert torch.equal(small.inputs(small.x_train, torch.tensor([2, 0])), small.x_train[[2, 0]])
    assert small.y_train is data.y_train
    assert small.classes == data.classes


def test_many_images_are_shrunk_in_pieces() -> None:
    data = stored(4096 + 5, 2)
    small = data.shrunk(1)
    assert len(small.x_train) == 4101
    torch.testing.assert_close(small.x_train[4090:].double(), naive(data.x_train[4090:], 1), rtol=0, atol=1e-5)


def test_floats_are_shrunk_as_they_are() -> None:
    data = digits()
    small = data.shrunk(4)
    expected = data.x_train.double().unflatten(2, (4, 2)).unflatten(4, (4, 2)).mean((3, 5))
    torch.testing.assert_close(small.x_train.double(), expected, rtol=0, atol=1e-6)
    assert torch.equal(data.shrunk(8).x_train, data.x_train)


@pytest.mark.parametrize("size", [0, -1, 3, 5, 16])
def test_only_a_divisor_will_do(size: int) -> None:
    with pytest.raises(
        UserError, match=rf"image_size is {size}; expected a divisor .* digits have the shape \[1, 8, 8\]"
    ):
        digits().shrunk(size)


def test_only_squares_of_images_can_be_shrunk() -> None:
    y = torch.tensor([0, 1])
    flat = Data("flat", torch.zeros(2, 16), y, torch.zeros(2, 16), y)
    wide = Data("wide", torch.zeros(2, 1, 4, 8), y, torch.zeros(2, 1, 4, 8), y)
    for data, shape in ((flat, r"\[16\]"), (wide, r"\[1, 4, 8\]")):
        with pytest.raises(UserError, match=f"{data.name} have the shape {shape}"):
            data.shrunk(4)


def test_the_settings_shrink_what_clients_see_and_nothing_else() -> None:
    common = Settings(model="softmax", clients=5, rounds=2, alpha=0.5)
    both = (common, Settings(**{**vars(common), "image_size": 4}))
    whole, small = (experiment_of(settings, ["fedavg"], [0]).population(0) for settings in both)
    assert len(small.task.initial(0)) == 10 * (16 + 1)
    assert len(whole.task.initial(0)) == 10 * (64 + 1)
    np.testing.assert_array_equal(small.trace.on, whole.trace.on)  # the same clients, the same labels, the same trace
    with pytest.raises(UserError, match="omit them for quadratic"):
        experiment_of(Settings(task="quadratic", image_size=4))
