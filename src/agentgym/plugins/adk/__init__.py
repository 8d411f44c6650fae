"""Google ADK: train agents of Google's Agent Development Kit, which runs them."""
