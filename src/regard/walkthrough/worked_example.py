"""The worked example of a widely read guide to self-attention.

Three vectors of width 4 and three matrices with one row per output: the projections are
``x @ W.T``. The docs page on the worked example compares the results with those of the guide.
"""

from __future__ import annotations

import torch

from regard.walkthrough import Steps, steps

X = ((1.0, 0.0, 0.0, 1.0), (0.0, 2.0, 2.0, 0.0), (1.0, 1.0, 0.0, 0.0))
W_Q = ((0.5, 0.2, 0.1, 0.3), (0.1, 0.3, 0.2, 0.5), (0.3, 0.1, 0.5, 0.2))
W_K = ((0.4, 0.1, 0.3, 0.2), (0.2, 0.4, 0.1, 0.3), (0.3, 0.2, 0.4, 0.1))
W_V = ((0.2, 0.3, 0.1, 0.4), (0.4, 0.2, 0.3, 0.1), (0.1, 0.4, 0.2, 0.3))


def worked() -> Steps:
    """The example's six steps, in float64.

    >>> worked().weights[0]
    tensor([0.2732, 0.4488, 0.2780], dtype=torch.float64)
    """
    x, w_q, w_k, w_v = (torch.tensor(m, dtype=torch.float64) for m in (X, W_Q, W_K, W_V))
    return steps(x, w_q.T, w_k.T, w_v.T)
