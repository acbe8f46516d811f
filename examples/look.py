"""Look at attention over 4,096 tokens without ever holding its 4,096 × 4,096 weights."""

import torch

from regard import attend, causal, look

torch.manual_seed(0)
n = 4096
q, k, v = (torch.randn(1, 8, n, 64) for _ in range(3))
needle, asks = 1234, 4000
q[:, 3, asks] = 2 * k[:, 3, needle]  # in head 4, token 4000 asks for exactly what token 1234 offers

seen = look(q, k, v, mask=causal)
same = torch.equal(seen.output, attend(q, k, v, mask=causal))
weights, keys = seen.top(3)

print(f"{n:,} tokens, 8 heads: the output is the same bit for bit: {same}")
print(f"head 4, token {asks:,} looks most at token {int(keys[0, 3, asks, 0]):,}, ", end="")
print(f"with weight {float(weights[0, 3, asks, 0]):.2f}")
entropy = seen.entropy()[0, :, asks]
print("how spread out each head is there, in nats:", [round(float(e), 2) for e in entropy])
