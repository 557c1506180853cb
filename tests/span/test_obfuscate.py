import numpy as np
import pytest

from unrelu.errors import InvalidInput
from unrelu.planted import random_network
from unrelu.span.algorithm import obfuscate, recover_span


@pytest.fixture(scope="module")
def target():
    net = random_network(100, 12, 8, 5, rng=0)
    return net, recover_span(net, rng=0)


def test_noise_of_the_asked_norm_leaves_the_answers(target):
    net, span = target
    x = np.random.default_rng(0).random((30, 100))
    made = obfuscate(x, span, noise=10.0, rng=1)
    np.testing.assert_allclose(made.noise_norm, 10.0, rtol=1e-12)
    # The basis is off by about 1e-9, the noise 10 times the image's norm of 6.
    np.testing.assert_allclose(net(made.images), net(x), atol=1e-6)
    assert np.all(made.affine_residual < 1e-12)
    assert np.median(np.abs(made.correlation)) < 0.3
    absolute = obfuscate(x, span, noise=2.5, relative=False, rng=1)
    np.testing.assert_allclose(np.linalg.norm(absolute.images - x, axis=1), 2.5)


def test_same_seed_same_noise_and_one_image(target):
    _, span = target
    x = np.random.default_rng(0).random(100)
    first, second = (obfuscate(x, span, noise=1.0, rng=3) for _ in range(2))
    np.testing.assert_array_equal(first.images, second.images)
    assert first.images.shape == (1, 100)


def test_box(target):
    net, span = target
    rng = np.random.default_rng(2)
    x = rng.random((20, 100)) * (rng.random((20, 100)) < 0.4)
    made = obfuscate(x, span, noise=10.0, box=(0.0, 1.0), rng=1)
    assert made.images.min() >= 0
    assert made.images.max() <= 1
    assert np.all(made.box_residual == 0)
    # The gap is closed to 1e-9 per entry; answers move by the gradient times that.
    np.testing.assert_allclose(net(made.images), net(x), atol=1e-6)
    assert made.noise_norm.min() > 0.3
    assert made.iterations > 0


def test_span_may_be_rows_that_are_not_orthonormal():
    rows = np.array([[2.0, 0, 0], [1.0, 1.0, 0]])
    made = obfuscate(np.ones((1, 3)), rows, noise=1.0, rng=0)
    np.testing.assert_allclose(made.images[0, :2], 1.0, atol=1e-12)


def test_zero_image_gets_no_relative_noise(target):
    _, span = target
    made = obfuscate(np.zeros((1, 100)), span, noise=5.0, rng=0)
    assert np.all(made.images == 0)


@pytest.mark.parametrize(
    ("x", "options", "words"),
    [
        (np.ones((2, 5)), {"noise": 1.0}, "shape"),
        (np.ones((2, 100)), {"noise": -1.0}, "noise"),
        (np.ones((2, 100)), {"noise": np.inf}, "noise"),
        (np.full((2, 100), np.nan), {"noise": 1.0}, "NaN"),
        (np.ones((2, 100)), {"noise": 1.0, "box": (1.0, 0.0)}, "low < high"),
        (2 * np.ones((2, 100)), {"noise": 1.0, "box": (0.0, 1.0)}, "outside the box"),
    ],
)
def test_bad_input(target, x, options, words):
    with pytest.raises(InvalidInput, match=words):
        obfuscate(x, target[1], **options)


def test_a_span_without_null_space():
    with pytest.raises(InvalidInput, match="no null space"):
        obfuscate(np.ones((1, 3)), np.eye(3), noise=1.0)
    with pytest.raises(InvalidInput, match="basis"):
        obfuscate(np.ones((1, 3)), np.ones(3), noise=1.0)
    with pytest.raises(InvalidInput, match="span"):
        obfuscate(np.ones((1, 3)), "here", noise=1.0)
