// The OpenAI SDK in its two shapes, as the checks of model.mjs want a client to be.
import OpenAI from 'openai';

export const errors = OpenAI;

function client({ url, key, retries }) {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: retries });
}

const models = (sdk) => ({
  async list() {
    const ids = [];
    for await (const m of sdk.models.list()) ids.push(m.id);
    return ids;
  },
  one: async (id) => (await sdk.models.retrieve(id)).id
});

export function chat(setup) {
  const sdk = client(setup);
  const tools = setup.tools.map((t) => ({ type: 'function', function: { name: t.name, description: t.description, parameters: t.schema } }));
  return { models: models(sdk), talk: (model) => chatTalk(sdk, setup, { model, tools }), run: chatRun(sdk, setup, tools) };
}

// chatRun is the SDK's own loop of an agent; use answers a call.
const chatRun = (sdk, { system, stream }, tools) => async (model, task, use) => {
  const messages = [{ role: 'system', content: system }, { role: 'user', content: task }];
  const runnable = tools.map(({ function: f }) => ({ type: 'function', function: { ...f, parse: JSON.parse, function: () => use(f.name) } }));
  return sdk.chat.completions.runTools({ model, messages, stream, tools: runnable }, { maxChatCompletions: 20 }).finalContent();
};

function chatTalk(sdk, setup, params) {
  const messages = [{ role: 'system', content: setup.system }];
  const last = async (options, onText) => {
    if (!setup.stream) return sdk.chat.completions.create({ ...params, messages }, options);
    const s = sdk.chat.completions.stream({ ...params, messages, stream_options: { include_usage: true } }, options);
    s.on('content', (delta) => onText?.(delta));
    return s.finalChatCompletion();
  };
  return {
    user: (content) => messages.push({ role: 'user', content }),
    results: (list) => list.forEach((r) => messages.push({ role: 'tool', tool_call_id: r.id, content: r.text })),
    async ask({ onText, ...options } = {}) {
      const { choices, usage } = await last(options, onText);
      const { content, tool_calls = [] } = choices[0].message;
      const calls = tool_calls.map((c) => ({ id: c.id, name: c.function.name, args: c.function.arguments }));
      const toolCalls = calls.map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.args } }));
      messages.push({ role: 'assistant', content, ...(toolCalls.length > 0 && { tool_calls: toolCalls }) });
      return { text: content ?? '', calls, stop: choices[0].finish_reason, used: used(usage.prompt_tokens, usage.prompt_tokens_details, usage.completion_tokens) };
    }
  };
}

// used is the usage as the bill has it: what was fresh, written to the cache and read from it.
function used(input, { cached_tokens: cached = 0, cache_write_tokens: created = 0 }, output) {
  return { fresh: input - cached - created, cached, created, output };
}

export function responses(setup) {
  const sdk = client(setup);
  const tools = setup.tools.map((t) => ({ type: 'function', name: t.name, description: t.description, parameters: t.schema, strict: false }));
  return { models: models(sdk), talk: (model) => responsesTalk(sdk, setup, { model, tools, store: false, instructions: setup.system }) };
}

function responsesTalk(sdk, setup, params) {
  const input = [];
  const last = async (options, onText) => {
    if (!setup.stream) return sdk.responses.create({ ...params, input }, options);
    const s = sdk.responses.stream({ ...params, input }, options);
    s.on('response.output_text.delta', (e) => onText?.(e.delta));
    return s.finalResponse();
  };
  return {
    user: (content) => input.push({ role: 'user', content }),
    results: (list) => list.forEach((r) => input.push({ type: 'function_call_output', call_id: r.id, output: r.text })),
    async ask({ onText, ...options } = {}) {
      const response = await last(options, onText);
      const calls = [];
      for (const item of response.output) {
        if (item.type === 'function_call') calls.push({ id: item.call_id, name: item.name, args: item.arguments });
        input.push(plain(item));
      }
      const { input_tokens, input_tokens_details, output_tokens } = response.usage;
      const thought = response.output.filter((i) => i.type === 'reasoning').flatMap((i) => i.summary.map((s) => s.text)).join('');
      return { text: response.output_text, thought, calls, stop: response.status, used: used(input_tokens, input_tokens_details, output_tokens) };
    }
  };
}

// plain takes away what the SDK's stream adds for its caller, which no API takes back.
function plain(item) {
  const { parsed_arguments: _, ...rest } = item;
  return rest.content ? { ...rest, content: rest.content.map(({ parsed: _, ...part }) => part) } : rest;
}
