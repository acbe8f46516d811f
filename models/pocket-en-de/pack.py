"""Put a trained model into a folder as it is shipped: ``python pack.py RUN [RUN …] FOLDER``.

RUN is a folder that `regard train` wrote, or one whose training still runs; of several that began
with the same model, the weights are averaged. They go in as int8, with a scale for each row.
Measure what was packed with measure.py before it is bundled.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch

from regard.translate.model_files import TOKENIZER, load_trained, save_model


def main(*runs: Path, folder: Path) -> None:
    model, longest = load_trained(runs[0])
    weights = [load_trained(run)[0].state_dict() for run in runs]
    model.load_state_dict(
        {name: sum(one[name] for one in weights) / len(runs) for name in weights[0]}
    )
    save_model(folder, model, dtype=torch.int8, longest=longest)
    shutil.copyfile(runs[0] / TOKENIZER, folder / TOKENIZER)
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:-1]), folder=Path(sys.argv[-1]))
