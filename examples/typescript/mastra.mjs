// A bookshop's agent with Mastra: npm install
// It knows nothing of AgentGym: it reads OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL.
import { readFileSync } from "node:fs";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";
import { order, prompt, stock } from "./shelf.mjs";

const agent = new Agent({
  name: "bookshop",
  instructions: prompt,
  model: {
    id: `openai/${process.env.OPENAI_MODEL}`,
    url: process.env.OPENAI_BASE_URL,
    apiKey: process.env.OPENAI_API_KEY,
  },
  tools: {
    stock: createTool({
      id: "stock",
      description: "Look up how many copies of a book are in stock.",
      inputSchema: z.object({ title: z.string() }),
      execute: async ({ context }) => stock(context),
    }),
    order: createTool({
      id: "order",
      description: "Order copies of a book.",
      inputSchema: z.object({ title: z.string(), copies: z.int() }),
      execute: async ({ context }) => order(context),
    }),
  },
});
const { text } = await agent.generate(readFileSync(0, "utf8"), { maxSteps: 20 });
console.log(text);
