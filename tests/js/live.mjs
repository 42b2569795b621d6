// A JavaScript runner that prints each piece of an answer when it comes. stdin: {sdk, base, key, body}.
// stdout, one JSON text a line: {said} for each piece of text, and at the end {whole} or {error}.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const say = (piece) => piece && print({ said: piece });
const openai = (job) => new OpenAI({ baseURL: `${job.base}/v1`, apiKey: job.key, maxRetries: 0, timeout: 60_000 });
const anthropic = (job) => new Anthropic({ baseURL: job.base, apiKey: job.key, maxRetries: 0, timeout: 60_000 });

const sdks = {
  async "openai-js stream"(job) {
    const stream = openai(job).chat.completions.stream(job.body).on("content", say);
    return stream.finalChatCompletion();
  },
  async "responses-js stream"(job) {
    const stream = openai(job).responses.stream(job.body).on("response.output_text.delta", (event) => say(event.delta));
    return stream.finalResponse();
  },
  async "anthropic-js stream"(job) {
    const stream = anthropic(job).messages.stream(job.body).on("text", say);
    return stream.finalMessage();
  },
};

let input = "";
for await (const part of process.stdin) input += part;
const job = JSON.parse(input);
try {
  print({ whole: await sdks[job.sdk](job) });
} catch (error) {
  print({ error: { kind: error.constructor.name, status: error.status ?? null, message: String(error.message) } });
}
