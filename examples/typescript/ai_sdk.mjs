// A bookshop's agent with the Vercel AI SDK: npm install
// It knows nothing of AgentGym: it reads OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL.
import { readFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";
import { order, prompt, stock } from "./shelf.mjs";

const provider = createOpenAICompatible({
  name: "bookshop",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
});
const { text } = await generateText({
  model: provider(process.env.OPENAI_MODEL),
  maxRetries: 0,
  stopWhen: stepCountIs(20),
  system: prompt,
  prompt: readFileSync(0, "utf8"),
  tools: {
    stock: tool({
      description: "Look up how many copies of a book are in stock.",
      inputSchema: z.object({ title: z.string() }),
      execute: stock,
    }),
    order: tool({
      description: "Order copies of a book.",
      inputSchema: z.object({ title: z.string(), copies: z.int() }),
      execute: order,
    }),
  },
});
console.log(text);
