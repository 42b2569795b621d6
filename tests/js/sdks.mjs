// What the SDKs of JavaScript runners make of an answer. stdin: JSON jobs; stdout: for each what was heard, as JSON.
// A job: {sdk, base, key, body}. Heard: {text, reasoning, signature, refusal, calls, finish, usage, chunks} or {error}.
import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";
import OpenAI7 from "openai-7";

globalThis.AI_SDK_LOG_WARNINGS = false; // they would go to stdout

const openai = (job, SDK = OpenAI) => new SDK({ baseURL: `${job.base}/v1`, apiKey: job.key, maxRetries: 0, timeout: 60_000 });
const anthropic = (job) => new Anthropic({ baseURL: job.base, apiKey: job.key, maxRetries: 0, timeout: 60_000 });

function completion(id, message, finish, usage, chunks, whole) {
  const calls = (message.tool_calls ?? []).filter((call) => call.function).map(({ id, function: made }) => ({ id, name: made.name, arguments: made.arguments }));
  return {
    id, role: message.role, text: message.content ?? null, refusal: message.refusal ?? null,
    reasoning: message.reasoning_content ?? null, calls, finish,
    usage: usage ? [usage.prompt_tokens, usage.completion_tokens] : null, chunks, whole,
  };
}

function message(made, chunks) {
  const of = (type) => made.content.filter((block) => block.type === type);
  const joined = (type, name) => of(type).map((block) => block[name]).join("");
  return {
    id: made.id, role: made.role, text: joined("text", "text"), reasoning: joined("thinking", "thinking"),
    signature: joined("thinking", "signature"), whole: made,
    calls: of("tool_use").map(({ id, name, input }) => ({ id, name, arguments: JSON.stringify(input) })),
    finish: made.stop_reason, usage: [made.usage.input_tokens, made.usage.output_tokens], chunks,
  };
}

const sdks = {
  // Put together by hand, as most runners do.
  async "openai-js create"(job) {
    const said = { tool_calls: [] };
    let id, finish, usage, chunks = 0;
    for await (const chunk of await openai(job).chat.completions.create({ ...job.body, stream: true })) {
      chunks += 1;
      id = chunk.id || id;
      usage = chunk.usage ?? usage;
      for (const { delta, finish_reason } of chunk.choices) {
        finish = finish_reason ?? finish;
        for (const name of ["role", "content", "refusal", "reasoning_content"]) {
          if (delta[name] != null) said[name] = (said[name] ?? "") + delta[name];
        }
        for (const part of delta.tool_calls ?? []) {
          const call = (said.tool_calls[part.index] ??= { function: { name: "", arguments: "" } });
          call.id = part.id ?? call.id;
          call.function.name += part.function.name ?? "";
          call.function.arguments += part.function.arguments ?? "";
        }
      }
    }
    return completion(id, said, finish, usage, chunks);
  },
  async "openai-js stream"(job, SDK = OpenAI) {
    let chunks = 0;
    const stream = openai(job, SDK).chat.completions.stream(job.body).on("chunk", () => (chunks += 1));
    const made = await stream.finalChatCompletion();
    return completion(made.id, made.choices[0].message, made.choices[0].finish_reason, made.usage, chunks, made);
  },
  async "openai-js-7 stream"(job) {
    return sdks["openai-js stream"](job, OpenAI7);
  },
  async "anthropic-js create"(job) {
    const made = { content: [] };
    let chunks = 0;
    const texts = { text_delta: "text", thinking_delta: "thinking", signature_delta: "signature" };
    for await (const event of await anthropic(job).messages.create({ ...job.body, stream: true })) {
      chunks += 1;
      if (event.type === "message_start") Object.assign(made, event.message, { content: [] });
      else if (event.type === "content_block_start") {
        if (event.index !== made.content.length) throw new Error(`block ${event.index}`);
        made.content.push({ ...event.content_block });
      } else if (event.type === "content_block_delta") {
        const block = made.content[event.index];
        const name = texts[event.delta.type];
        if (name) block[name] = (block[name] ?? "") + event.delta[name];
        else if (event.delta.type === "input_json_delta") block.json = (block.json ?? "") + event.delta.partial_json;
      } else if (event.type === "content_block_stop") {
        const block = made.content[event.index];
        if (block.json) block.input = JSON.parse(block.json);
        delete block.json;
      } else if (event.type === "message_delta") {
        Object.assign(made, event.delta, { usage: { ...made.usage, ...event.usage } });
      } else if (event.type === "message_stop") made.stopped = true;
    }
    if (!made.stopped) throw new Error("no message_stop");
    return message(made, chunks);
  },
  async "anthropic-js stream"(job) {
    let chunks = 0;
    const stream = anthropic(job).messages.stream(job.body).on("streamEvent", () => (chunks += 1));
    return message(await stream.finalMessage(), chunks);
  },
  "ai openai": (job) => ai(job, createOpenAICompatible({ baseURL: `${job.base}/v1`, apiKey: job.key, name: "pod", includeUsage: true })),
  "ai anthropic": (job) => ai(job, createAnthropic({ baseURL: `${job.base}/v1`, apiKey: job.key })),
};

async function ai(job, provider) {
  const declared = (job.body.tools ?? []).map((entry) => entry.function?.name ?? entry.name);
  const inputSchema = jsonSchema({ type: "object", additionalProperties: true });
  const result = streamText({
    model: provider(job.body.model),
    messages: job.body.messages,
    tools: Object.fromEntries(declared.map((name) => [name, tool({ inputSchema })])),
    maxRetries: 0,
    onError() {},
  });
  const heard = { text: "", reasoning: "", signature: "", calls: [], chunks: 0 };
  for await (const part of result.fullStream) {
    heard.chunks += 1;
    heard.signature += part.providerMetadata?.anthropic?.signature ?? "";
    if (part.type === "text-delta") heard.text += part.text;
    else if (part.type === "reasoning-delta") heard.reasoning += part.text;
    else if (part.type === "tool-call") heard.calls.push({ id: part.toolCallId, name: part.toolName, arguments: JSON.stringify(part.input) });
    else if (part.type === "error") throw part.error;
    else if (part.type === "finish") {
      heard.finish = part.finishReason;
      heard.usage = [part.totalUsage.inputTokens, part.totalUsage.outputTokens];
    }
  }
  heard.whole = (await result.response).messages;
  return heard;
}

function failure(error) {
  const said = error instanceof Error ? error : { name: typeof error, message: JSON.stringify(error) };
  return { error: { kind: said.constructor?.name, status: said.status ?? said.statusCode ?? null, message: String(said.message) } };
}

let input = "";
for await (const part of process.stdin) input += part;
const heard = await Promise.all(JSON.parse(input).map((job) => sdks[job.sdk](job).catch(failure)));
process.stdout.write(JSON.stringify(heard));
