"""Dialects: how providers' APIs write a chat; each converts to chat completions.

One file per API: ``chat`` (OpenAI's chat completions), ``responses`` (OpenAI's
Responses), ``messages`` (Anthropic's Messages). The rest of the package knows chat
completions alone.
"""
