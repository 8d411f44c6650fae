// A bookshop's agent in JavaScript, with the `openai` package: npm install
// It knows nothing of AgentGym: the client reads OPENAI_BASE_URL and OPENAI_API_KEY.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const shelf = { Dune: 3, Emma: 0, Walden: 7, Beloved: 2, Candide: 5, Hamlet: 1 };
const tools = {
  stock: ({ title }) => {
    if (!(title in shelf)) throw new Error(`there is no book ${title}`);
    return `${shelf[title]} copies`;
  },
  order: ({ title, copies }) => `ordered ${copies} of ${title}`,
};
const described = [
  {
    type: "function",
    function: {
      name: "stock",
      description: "Look up how many copies of a book are in stock.",
      parameters: {
        type: "object",
        properties: { title: { type: "string" } },
        required: ["title"],
      },
    },
  },
  {
    type: "function",
    function: {
      name: "order",
      description: "Order copies of a book.",
      parameters: {
        type: "object",
        properties: { title: { type: "string" }, copies: { type: "integer" } },
        required: ["title", "copies"],
      },
    },
  },
];

function run({ function: { name, arguments: given } }) {
  try {
    return String(tools[name](JSON.parse(given)));
  } catch (error) {
    return `Error: ${error.message}`;
  }
}

const client = new OpenAI();
const messages = [
  { role: "system", content: "You work in a bookshop. Use the tools." },
  { role: "user", content: readFileSync(0, "utf8") },
];
while (true) {
  const answer = await client.chat.completions.create({
    model: process.env.OPENAI_MODEL,
    messages,
    tools: described,
  });
  const { message } = answer.choices[0];
  messages.push(message);
  if (!message.tool_calls?.length) {
    console.log(message.content);
    break;
  }
  for (const call of message.tool_calls) {
    messages.push({ role: "tool", tool_call_id: call.id, content: run(call) });
  }
}
