// A runner that knows of no proxy: both SDKs with nothing but what its environment holds. stdout: the text of each turn.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const messages = [{ role: "user", content: "Go" }];
const chat = new OpenAI().chat.completions.stream({ model: "gpt-test", messages });
const first = await chat.finalContent();
const talk = new Anthropic().messages.stream({ model: "claude-test", max_tokens: 9, messages });
console.log(JSON.stringify([first, await talk.finalText()]));
