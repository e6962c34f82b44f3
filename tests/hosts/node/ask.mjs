// Asks as a program of somebody's would, with the client unchanged: prints what came, as JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY, maxRetries: 0 });
const model = process.env.MODEL;
const messages = [{ role: "user", content: "Are you there?" }];
const tools = [
  {
    type: "function",
    function: {
      name: "look",
      description: "Looks at a part of the box.",
      parameters: { type: "object", properties: { at: { type: "string" } }, required: ["at"] },
    },
  },
];

async function streamed(asked) {
  const found = { content: "", reasoning: "", calls: [], pieces: 0, finish: null, tokens: null };
  const stream = await client.chat.completions.create({
    ...asked,
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const piece of stream) {
    found.tokens = piece.usage?.completion_tokens ?? found.tokens;
    for (const { delta, finish_reason } of piece.choices) {
      found.pieces += 1;
      found.content += delta.content ?? "";
      found.reasoning += delta.reasoning ?? "";
      found.finish = finish_reason ?? found.finish;
      for (const { index, function: part } of delta.tool_calls ?? []) {
        const call = (found.calls[index] ??= { name: "", arguments: "" });
        call.name += part.name ?? "";
        call.arguments += part.arguments ?? "";
      }
    }
  }
  return found;
}

async function whole(asked) {
  const { choices, usage } = await client.chat.completions.create(asked);
  const { message, finish_reason, logprobs } = choices[0];
  return {
    content: message.content ?? "",
    reasoning: message.reasoning ?? "",
    calls: (message.tool_calls ?? []).map((call) => call.function),
    finish: finish_reason,
    tokens: usage.completion_tokens,
    logprobs: (logprobs?.content ?? []).map((one) => one.token),
  };
}

const silent = { chat_template_kwargs: { enable_thinking: false } };
const wrong = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "wrong", maxRetries: 0 });
const found = {
  models: (await client.models.list()).data.map((one) => one.id),
  chat: await whole({ model, messages }),
  stream: await streamed({ model, messages }),
  silent: await whole({ model, messages, ...silent, logprobs: true, top_logprobs: 2 }),
  silent_stream: await streamed({ model, messages, ...silent }),
  tool: await whole({ model, messages, tools }),
  tool_stream: await streamed({ model, messages, tools }),
  wrong: await wrong.models.list().then(
    () => 200,
    (error) => error.status,
  ),
};
console.log(JSON.stringify(found));
