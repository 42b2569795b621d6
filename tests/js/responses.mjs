// Runners in JavaScript over Responses; see tests/sdks/responses/python_runners.py for what they read and print.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import OpenAI7 from "openai-7";

globalThis.AI_SDK_LOG_WARNINGS = false; // they would go to stdout

const MODEL = "gpt-5.1", FILES = "three files", SEALED = "reasoning.encrypted_content", MAX_TRIES = 3;
const SCHEMA = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const TOOLS = [{ type: "function", name: "shell", parameters: SCHEMA, strict: false }];

// The OpenAI SDK with the loop that its users write. way: plain, events or helper.
function sdk(play, record, SDK = OpenAI) {
  const client = new SDK({ baseURL: play.base ?? undefined, apiKey: play.key });
  const history = [];
  let previous, conversation;
  const body = (given) => ({
    chain: { input: given, ...(previous ? { previous_response_id: previous } : {}) },
    conversation: { input: given, conversation },
    resend: { input: [...history, ...given], store: false, include: [SEALED] },
    kept: { input: [...history, ...given] },
  })[play.mode];

  async function respond(body) {
    const { responses } = client;
    const asked = { model: MODEL, tools: TOOLS, ...body };
    if (play.way === "plain") return responses.create(asked);
    if (play.way === "helper") return responses.stream(asked).on("event", (event) => record.seen.push(JSON.stringify(event))).finalResponse();
    let last;
    for await (const event of await responses.create({ ...asked, stream: true })) {
      record.seen.push(JSON.stringify(event));
      last = event;
    }
    if (last.type !== "response.completed") throw new Error(last.type);
    return last.response;
  }

  return async function ask(words) {
    if (play.mode === "conversation") conversation ??= (await client.conversations.create({})).id;
    for (let given = [{ role: "user", content: words }]; ; ) {
      const response = await insist(record, () => respond(body(given)));
      record.seen.push(JSON.stringify(response));
      history.push(...given, ...response.output.map(({ parsed_arguments, ...item }) => item));
      previous = response.id;
      const calls = response.output.filter((item) => item.type === "function_call");
      if (!calls.length) return response.output.flatMap((item) => item.content ?? []).map((part) => part.text ?? "").join("");
      given = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: shell(record) }));
    }
  };
}

const sdk7 = (play, record) => sdk(play, record, OpenAI7);

// Vercel's AI SDK, which runs the tools by itself. way: plain or events.
function vercel(play, record) {
  const provider = createOpenAI({ ...(play.base ? { baseURL: play.base } : {}), apiKey: play.key });
  const tools = { shell: tool({ inputSchema: jsonSchema(SCHEMA), execute: () => shell(record) }) };
  let messages = [], previous, conversation;
  async function run(given) {
    const openai = {
      resend: { store: false, include: [SEALED] }, kept: {}, conversation: { conversation },
      chain: previous ? { previousResponseId: previous } : {},
    }[play.mode];
    const asked = { model: provider(MODEL), tools, stopWhen: stepCountIs(5), messages: given, providerOptions: { openai } };
    if (play.way === "plain") return generateText(asked);
    const result = streamText({ ...asked, onError() {} });
    for await (const part of result.fullStream) {
      record.seen.push(JSON.stringify(part));
      if (part.type === "error") throw part.error;
    }
    return { text: await result.text, response: await result.response, providerMetadata: await result.providerMetadata };
  }
  return async function ask(words) {
    const asked = { role: "user", content: words };
    if (play.mode === "conversation") conversation ??= (await new OpenAI({ baseURL: play.base ?? undefined, apiKey: play.key }).conversations.create({})).id;
    const given = ["chain", "conversation"].includes(play.mode) ? [asked] : [...messages, asked];
    const made = await insist(record, () => run(given));
    messages = [...given, ...made.response.messages];
    previous = made.providerMetadata.openai.responseId;
    record.seen.push(JSON.stringify(made.response));
    return made.text;
  };
}

function shell(record) {
  record.ran += 1;
  return FILES;
}

async function insist(record, ask) {
  for (let tries = 1; tries < MAX_TRIES; tries++) {
    try {
      return await ask();
    } catch (error) {
      record.errors.push(`${error?.constructor?.name}: ${error?.message}`);
    }
  }
  return ask();
}

async function perform(play) {
  const record = { said: [], ran: 0, errors: [], seen: [] };
  try {
    const ask = { "openai-js": sdk, "openai-js-7": sdk7, "ai-sdk": vercel }[play.runner](play, record);
    for (const words of play.words) record.said.push(await ask(words));
  } catch (error) {
    record.errors.push(`gave up: ${error?.constructor?.name}: ${error?.message}`);
  }
  return { ...record, seen: record.seen.join("") };
}

let input = "";
for await (const part of process.stdin) input += part;
process.stdout.write(JSON.stringify(await Promise.all(JSON.parse(input).map(perform))));
