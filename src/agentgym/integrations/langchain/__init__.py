"""Train and export LangChain agents and LangGraph graphs; LangGraph runs them."""
