"""``python -m agentgym`` is ``agentgym``."""

import sys

from agentgym.cli.main import main

sys.exit(main())
