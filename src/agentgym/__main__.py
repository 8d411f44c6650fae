"""``python -m agentgym`` is ``agentgym``."""

from agentgym.cli.main import main

if __name__ == "__main__":
    main()
