"""Judge a repository: exit code 0 if the task's test passes and nothing else broke.

It runs in the agent's folder, with the tests as they were at the start: an agent that
edits those has not solved anything.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

RUN = """
import sys, unittest
sys.path.insert(0, "")
tests = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
result = unittest.TextTestRunner().run(tests)
print(result.testsRun if result.wasSuccessful() else 0)
"""
SECONDS = 20

task = json.loads(Path(os.environ["AGENTGYM_TASK_JSON"]).read_text())
repository, _, test = task["id"].partition("/")
for path in (Path(__file__).parent / task["files"]).glob("test_*.py"):
    shutil.copy(path, path.name)
names = [f"test_{repository}.{each}" for each in (test, "Works")]
try:
    ended = subprocess.run(
        [sys.executable, "-I", "-B", "-c", RUN, *names],
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
    )
except subprocess.TimeoutExpired:
    sys.exit(1)
# Not the exit code: code that calls sys.exit() before any test has run ends with 0.
last = ended.stdout.split()[-1:]
sys.exit(last in ([], ["0"]))
