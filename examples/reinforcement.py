"""Train a policy that remembers: attention over its own past, beside a policy without a past.

    python examples/reinforcement.py --corridor 20 --updates 300

The agent walks along a corridor of signs, one of which is an arrow, and must turn as it said at
the end. See docs/beyond/reinforcement.md. Needs gymnasium.
"""

import argparse
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from regard import causal, watch, window
from regard.attention import Mask
from regard.nn import Decoder, Embedding, TransformerConfig

JUNCTION = 4  # 0 and 1 are the arrows to the left and right, 2 and 3 signs without a meaning
FORWARD, LEFT = 0, 1


class Maze(gymnasium.Env):
    """A corridor with a junction at its end: +1 for turning as the arrow said, −1 if not."""

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, corridor: int) -> None:
        self.corridor = corridor

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        length = self.np_random.integers(self.corridor // 2 + 1, self.corridor + 1)
        self.signs = self.np_random.integers(2, 4, length)
        self.side = int(self.np_random.integers(2))
        self.signs[self.np_random.integers(length)] = self.side
        self.place, self.steps = 0, 0
        return self.seen(), {}

    def seen(self) -> int:
        return int(self.signs[self.place]) if self.place < len(self.signs) else JUNCTION

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        at_junction, turns = self.place == len(self.signs), action != FORWARD
        reward = -0.1 if at_junction != turns else 0.0
        if at_junction and turns:
            reward = 1.0 if action == LEFT + self.side else -1.0
        self.place += not at_junction and not turns
        return self.seen(), reward, at_junction and turns, self.steps > 2 * self.corridor, {}


class Policy(nn.Module):
    """Logits of the three actions after each of the observations so far."""

    def __init__(self, mask: Mask, width: int = 32) -> None:
        super().__init__()
        config = TransformerConfig(
            vocabulary=5, width=width, decoder_depth=1, heads=2, feed_forward=64,
            norm_place="before", activation="gelu", dropout=0.0,
        )  # fmt: skip
        self.mask = mask
        self.enter, self.decoder = Embedding(config), Decoder(config, cross=False)
        self.output = nn.Linear(width, 3)

    def forward(self, seen: Tensor) -> Tensor:
        return self.output(self.decoder(self.enter(seen), mask=self.mask))


@torch.no_grad()
def play(policy: Policy, mazes: list[Maze], greedy: bool = False) -> tuple[Tensor, ...]:
    """One episode in each maze: observations, actions, rewards, and which steps were taken."""
    seen = torch.tensor([[maze.reset()[0]] for maze in mazes])
    actions, rewards, running = [], [], [torch.ones(len(mazes), dtype=torch.bool)]
    while running[-1].any():
        choice = Categorical(logits=policy(seen)[:, -1])
        action = choice.logits.argmax(1) if greedy else choice.sample()
        after = [
            maze.step(int(a)) if on else (JUNCTION, 0.0, True, False, {})
            for maze, a, on in zip(mazes, action, running[-1].tolist(), strict=True)
        ]
        actions.append(action)
        rewards.append(torch.tensor([step[1] for step in after]))
        running.append(torch.tensor([not (step[2] or step[3]) for step in after]))
        seen = torch.cat((seen, torch.tensor([[step[0]] for step in after])), 1)
    stacked = (torch.stack(each, 1) for each in (actions, rewards, running[:-1]))
    return seen[:, :-1], *stacked


def learn(policy: Policy, mazes: list[Maze], updates: int) -> None:
    """REINFORCE (Williams, 1992), with the mean return as baseline and a little entropy."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    for _ in range(updates):
        seen, actions, rewards, running = play(policy, mazes)
        to_come = rewards.flip(1).cumsum(1).flip(1)
        better = (to_come - to_come[running].mean()) / (to_come[running].std() + 1e-6)
        choice = Categorical(logits=policy(seen))
        gain = choice.log_prob(actions) * better + 0.02 * choice.entropy()
        optimizer.zero_grad()
        (-gain[running].mean()).backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corridor", type=int, default=10, help="its greatest length")
    parser.add_argument("--updates", type=int, default=120, help="rounds of 64 episodes")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    mazes = [Maze(given.corridor) for _ in range(64)]
    for i, maze in enumerate(mazes):
        maze.reset(seed=64 * given.seed + i)
    for name, mask in {"what it sees now": window(1), "attention over the past": causal}.items():
        torch.manual_seed(given.seed)
        policy = Policy(mask)
        learn(policy, mazes, given.updates)
        seen, _, rewards, running = play(policy, mazes, greedy=True)
        print(f"{name:24} mean return {rewards.sum(1).mean():5.2f}")
    with torch.no_grad(), watch(policy) as looks:
        policy(seen)
    rows, at = range(len(seen)), running.sum(1) - 1
    weights = looks["decoder.blocks.0.attention"].weights()[rows, :, at]
    share = weights[rows, :, (seen < 2).double().argmax(1)].mean(0).max()
    print(f"at the junction, its strongest head puts {share:.0%} of its attention on the arrow")


if __name__ == "__main__":
    main()
