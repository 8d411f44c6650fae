"""Dialects: convert between other chat APIs and OpenAI's chat completions.

One file per API: ``chat`` (OpenAI's chat completions), ``responses`` (OpenAI's
Responses), ``messages`` (Anthropic's Messages). Other parts of AgentGym use only chat
completions.
"""
