"""Judge a folder, for the agent that writes notes.

It runs in the folder of the agent's program once that has ended; exit code 0 is a
success and 1 is not. A last line of JSON says more: {"reward": 0.5}.
"""

import json
import sys
from pathlib import Path

note = Path("note.txt")
words = note.read_text().split() if note.is_file() else []
sys.stdout.write(json.dumps({"reward": min(1.0, len(words) / 5)}) + "\n")
