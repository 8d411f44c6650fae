"""LangChain and LangGraph: the adapter, its models, the export."""
