"""An OpenAI-compatible server that answers at once: a tool call, then an answer.

python benchmarks/instant_model.py PORT
"""

import sys

from aiohttp import web

_CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "list_files", "arguments": "{}"},
}


async def complete(request: web.Request) -> web.Response:
    """Call ``list_files`` once, then answer."""
    body = await request.json()
    answered = body["messages"][-1]["role"] == "tool"
    message = {
        "role": "assistant",
        "content": "Done." if answered else None,
        **({} if answered else {"tool_calls": [_CALL]}),
    }
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "stop" if answered else "tool_calls",
        "token_ids": list(range(20)),
        "logprobs": None,
    }
    return web.json_response(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "prompt_token_ids": list(range(200)),
            "choices": [choice],
            "usage": {
                "prompt_tokens": 200,
                "completion_tokens": 20,
                "total_tokens": 220,
            },
        }
    )


if __name__ == "__main__":
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_post("/proxy/{episode:.*}/chat/completions", complete)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
