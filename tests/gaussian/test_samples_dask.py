"""Two worker processes give what one process gives; a killed one loses nothing."""

import os
import signal

import numpy as np
import pytest

from unrelu.gaussian.algorithm import learn_from_samples
from unrelu.gaussian.stream import ReadingPlan, map_batches
from unrelu.samples import as_source

pytestmark = [
    pytest.mark.slow,
    # dask's own warnings about ports and about workers that we kill
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40_000, 4))
    w = rng.standard_normal((3, 4))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    return x, np.maximum(x @ w.T + [0.3, -0.4, 0.1], 0) @ [1.0, -0.8, 0.6]


def _agree(one, two):
    assert one.success
    assert two.success
    assert one.width == two.width
    # The sums agree to rounding; the exact fits then to rounding times 1e3.
    for a, b in zip(one.network.weights, two.network.weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    np.testing.assert_allclose(one.moment_weights, two.moment_weights, atol=1e-6)


def test_arrays_files_and_dask_arrays_agree_with_one_process(client, data, tmp_path):
    array = pytest.importorskip("dask.array")
    one = learn_from_samples(*data, rng=0)
    _agree(one, learn_from_samples(*data, rng=0, scheduler=client))
    for i in range(4):
        piece = slice(i * 10_000, (i + 1) * 10_000)
        np.savez(tmp_path / f"part{i}.npz", x=data[0][piece], y=data[1][piece])
    _agree(one, learn_from_samples(tmp_path, rng=0, scheduler=client))
    x = array.from_array(data[0], chunks=(10_000, 4))
    _agree(one, learn_from_samples(x, array.from_array(data[1], chunks=10_000), rng=0))


class _Fatal:
    """A kernel that kills one worker in the middle of its first batch."""

    def __init__(self, victim):
        self.victim = victim

    def __call__(self, x, y, start):
        if os.getpid() == self.victim:
            os.kill(self.victim, signal.SIGKILL)
        return start, float(x.sum())


def test_a_killed_worker_loses_nothing(client, data):
    plan = ReadingPlan(rows=4000)
    expected = list(map_batches(as_source(*data), lambda x, y, s: (s, float(x.sum())), plan))
    victim = next(iter(client.run(os.getpid).values()))
    kernel = _Fatal(victim)
    found = list(map_batches(as_source(*data), kernel, ReadingPlan(rows=4000, scheduler=client)))
    client.wait_for_workers(2)  # the nanny has started another one
    assert victim not in client.run(os.getpid).values()
    # Every batch once and in order; a sum of 16,000 numbers rounds at 1e-12.
    assert [start for start, _ in found] == [start for start, _ in expected]
    np.testing.assert_allclose([v for _, v in found], [v for _, v in expected], atol=1e-9)
