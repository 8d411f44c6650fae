// A bookshop's agent with the Claude Agent SDK: npm install
// It knows nothing of AgentGym: the SDK reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY.
import { readFileSync } from "node:fs";
import { createSdkMcpServer, query, tool } from "@anthropic-ai/claude-agent-sdk";
import { z } from "zod";
import { order, prompt, stock } from "./shelf.mjs";

const said = (text) => ({ content: [{ type: "text", text }] });
const shop = createSdkMcpServer({
  name: "shop",
  tools: [
    tool(
      "stock",
      "Look up how many copies of a book are in stock.",
      { title: z.string() },
      async (given) => said(stock(given)),
    ),
    tool(
      "order",
      "Order copies of a book.",
      { title: z.string(), copies: z.int() },
      async (given) => said(order(given)),
    ),
  ],
});
const options = {
  model: process.env.ANTHROPIC_MODEL,
  systemPrompt: prompt,
  mcpServers: { shop },
  tools: [], // none of Claude Code's own
  allowedTools: ["mcp__shop__stock", "mcp__shop__order"],
  settingSources: [],
  env: { ...process.env, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" },
};
for await (const message of query({ prompt: readFileSync(0, "utf8"), options })) {
  if (message.type === "result") console.log(message.result ?? message.subtype);
}
