"""tensorly's CP decomposition of given moment tensors: tensorly_cp.py MOMENTS.npz OUT.npy.

``default``: ``parafac`` of the third moment at the given rank, all arguments as they come.
``tuned``: of the fourth moment, ten random starts, 500 iterations, the best fit kept.
"""

import sys

import numpy as np
import tensorly
from tensorly.decomposition import parafac

source, out = sys.argv[1:3]
with np.load(source) as file:
    third, fourth, rank = file["third"], file["fourth"], int(file["rank"])
    seed, setting = int(file["seed"]), str(file["setting"])
if setting == "default":
    best = parafac(tensorly.tensor(third), rank=rank, random_state=seed)
else:
    fits = [
        parafac(tensorly.tensor(fourth), rank=rank, init="random", random_state=seed + i,
                n_iter_max=500, tol=1e-10)
        for i in range(10)
    ]  # fmt: skip
    norms = [float(np.linalg.norm(tensorly.cp_to_tensor(fit) - fourth)) for fit in fits]
    best = fits[int(np.argmin(norms))]
directions = np.asarray(best.factors[0]).T
np.save(out, directions / np.linalg.norm(directions, axis=1, keepdims=True))
