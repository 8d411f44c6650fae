"""Train any program, in any language: ``--command "node agent.js"``."""
