"""Dialects: convert providers' chat APIs from and to chat completions.

One file per API: ``chat`` (OpenAI's chat completions), ``responses`` (OpenAI's
Responses), ``messages`` (Anthropic's Messages). The rest of the package only uses chat
completions.
"""
