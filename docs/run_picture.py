"""Draws the end of a real training, as a terminal of 100 columns shows it, as an SVG.

    uv run python docs/run_picture.py docs/images/run-end.svg

The picture loads no font and nothing else.
"""

import os
import pty
import re
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 100
COMMAND = "agentgym train coding --framework langchain --episodes 832"
_LIVE_ENDS = b"\x1b[?25h"  # the cursor is shown again
_FONT = re.compile(r"\s*@font-face \{.*?\}\n", re.DOTALL)


def record(command: list[str]) -> bytes:
    """Run a command in a terminal of its own; return the bytes that it wrote."""
    written = bytearray()

    def read(terminal: int) -> bytes:
        part = os.read(terminal, 65536)
        written.extend(part)
        return part

    os.environ |= {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    pty.spawn(command, read)
    return bytes(written)


def draw(written: bytes, path: Path) -> None:
    """Draw the first and the last parts of what follows the last live display."""
    end = written.split(_LIVE_ENDS)[-1].decode().replace("\r", "").strip("\n")
    parts = re.split(r"\n\s*\n", end)
    parts[1:-2] = ["…"] * (len(parts) > 3)
    console = Console(record=True, width=COLUMNS, file=StringIO())
    console.print(f"$ {COMMAND}", "…", sep="\n", highlight=False)
    console.print(Text.from_ansi("\n\n".join(parts)))
    svg = _FONT.sub("", console.export_svg(title="agentgym"))
    path.write_text(svg.replace("Fira Code, monospace", "monospace"))


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AGENTGYM_HOME"] = f"{folder}/home"
        os.chdir(folder)
        draw(record(COMMAND.split()), target)
