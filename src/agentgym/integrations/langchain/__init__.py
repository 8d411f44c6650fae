"""LangChain and LangGraph: adapter, models, and the export of trained agents."""
