"""Put a trained model into a folder as it is shipped: ``python pack.py RUN FOLDER``.

RUN is the folder that `regard train` wrote, or one whose training still runs. Weights go in as
int8, with a scale for each row. Measure what was packed with measure.py before it is bundled.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch

from regard.translate.model_files import TOKENIZER, load_trained, save_model


def main(run: Path, folder: Path) -> None:
    model, longest = load_trained(run)
    save_model(folder, model, dtype=torch.int8, longest=longest)
    shutil.copyfile(run / TOKENIZER, folder / TOKENIZER)
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
