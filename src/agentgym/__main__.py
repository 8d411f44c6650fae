"""Entry point of ``python -m agentgym``."""

import sys

from agentgym.cli.main import main

sys.exit(main())
