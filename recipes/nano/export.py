"""Write a checkpoint of pretraining as the policy that ships."""

import argparse
from pathlib import Path

import torch
from transformers import AutoTokenizer

from recipes.nano.model import NanoConfig, export
from recipes.nano.tokenizer import TEMPLATE


def main() -> None:
    """Export the averaged weights with the tokenizer and its chat template."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weights", choices=("average", "model"), default="average")
    options = parser.parse_args()
    state = torch.load(options.checkpoint)
    weights = {
        k: v for k, v in state[options.weights].items() if k not in ("cos", "sin")
    }
    export(NanoConfig(), weights, options.out)
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    tokenizer.chat_template = TEMPLATE.read_text()
    tokenizer.save_pretrained(options.out)
    print(f"step {state['step']}, {state['tokens']} tokens -> {options.out}")


if __name__ == "__main__":
    main()
