// OpenAI's own client for Node.js, and a loop as agents have it: what is a call in the answer is run and asked about again.
import OpenAI from "openai";

const order = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: order.base_url, apiKey: "key", maxRetries: 0, defaultHeaders: order.headers });
const lookUp = {
  type: "function",
  name: "look_up",
  description: "Looks a word up.",
  strict: false,
  parameters: { type: "object", properties: { word: { type: "string" } }, required: ["word"] },
};

async function respond(input, before) {
  const asked = { model: "librarian", input, tools: [lookUp], ...before };
  return order.streamed ? client.responses.stream(asked).finalResponse() : client.responses.create(asked);
}

let ownCalls = 0;
const answers = [];
let said = [];
let before = {};
for (const question of order.questions) {
  said.push({ role: "user", content: question });
  let response;
  for (;;) {
    response = await respond(said, before);
    if (order.by_id) [said, before] = [[], { previous_response_id: response.id }];
    else said.push(...response.output);
    const wanted = response.output.filter((item) => item.type === "function_call");
    if (wanted.length === 0) break;
    ownCalls += wanted.length;
    said.push(...wanted.map((one) => ({ type: "function_call_output", call_id: one.call_id, output: "mine" })));
  }
  answers.push(response.output_text);
}
console.log(JSON.stringify({ answers, own_calls: ownCalls }));
