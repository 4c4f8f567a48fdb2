// The AI SDK with its provider for OpenAI, whose default is this API.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const order = JSON.parse(process.argv[2]);
const provider = createOpenAI({ baseURL: order.base_url, apiKey: "key", headers: order.headers });

let ownCalls = 0;
const tools = {
  look_up: tool({
    description: "Looks a word up.",
    inputSchema: z.object({ word: z.string() }),
    execute: async () => {
      ownCalls += 1;
      return "mine";
    },
  }),
};

async function answer(messages, before) {
  const providerOptions = { openai: before };
  const asked = { model: provider("librarian"), tools, messages, stopWhen: stepCountIs(5), maxRetries: 0, providerOptions };
  if (!order.streamed) return generateText(asked);
  const stream = streamText({ ...asked, onError: ({ error }) => { throw error; } });
  return { text: await stream.text, response: await stream.response, providerMetadata: await stream.providerMetadata };
}

const answers = [];
let said = [];
let before = {};
for (const question of order.questions) {
  said.push({ role: "user", content: question });
  const result = await answer(said, before);
  if (order.by_id) [said, before] = [[], { previousResponseId: result.providerMetadata.openai.responseId }];
  else said.push(...result.response.messages);
  answers.push(result.text);
}
console.log(JSON.stringify({ answers, own_calls: ownCalls }));
