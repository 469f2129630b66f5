// The Anthropic SDK, as the checks of model.mjs want a client to be.
import Anthropic from '@anthropic-ai/sdk';

export const errors = Anthropic;

export function messages(setup) {
  const sdk = new Anthropic({ baseURL: setup.url, apiKey: setup.key, maxRetries: setup.retries });
  const tools = setup.tools.map((t) => ({ name: t.name, description: t.description, input_schema: t.schema }));
  const system = [{ type: 'text', text: setup.system, cache_control: { type: 'ephemeral' } }];
  const thinking = { type: 'enabled', budget_tokens: 2048 };
  return {
    models: {
      async list() {
        const ids = [];
        for await (const m of sdk.models.list()) ids.push(m.id);
        return ids;
      },
      one: async (id) => (await sdk.models.retrieve(id)).id
    },
    async count(model, content) {
      const { input_tokens } = await sdk.messages.countTokens({ model, tools, system, thinking, messages: [{ role: 'user', content }] });
      return input_tokens;
    },
    // run is the SDK's own loop of an agent; use answers a call. Without thread: false the provider
    // would keep the conversation, and each request hold only what is new.
    async run(model, content, use) {
      const runnable = tools.map((t) => ({ ...t, run: () => use(t.name), parse: (input) => input }));
      const params = { model, system, tools: runnable, max_tokens: 4096, stream: setup.stream, max_iterations: 20, thread: false };
      const { content: reply } = await sdk.beta.messages.toolRunner({ ...params, thinking, messages: [{ role: 'user', content }] }).runUntilDone();
      return reply.map((b) => b.text).join('');
    },
    talk: (model) => talk(sdk, setup, { model, tools, system, thinking, max_tokens: 4096 })
  };
}

function talk(sdk, setup, params) {
  const messages = [];
  const last = async (options, onText) => {
    if (!setup.stream) return sdk.messages.create({ ...params, messages }, options);
    const s = sdk.messages.stream({ ...params, messages }, options);
    s.on('text', (delta) => onText?.(delta));
    return s.finalMessage();
  };
  const joined = (content, kind, key) => content.filter((b) => b.type === kind).map((b) => b[key]).join('');
  return {
    user: (content) => messages.push({ role: 'user', content }),
    results: (list) => messages.push({
      role: 'user',
      content: list.map((r) => ({ type: 'tool_result', tool_use_id: r.id, content: r.text, ...(r.failed && { is_error: true }) }))
    }),
    async ask({ onText, ...options } = {}) {
      const { content, usage, stop_reason } = await last(options, onText);
      messages.push({ role: 'assistant', content });
      const calls = content.filter((b) => b.type === 'tool_use').map((b) => ({ id: b.id, name: b.name, args: JSON.stringify(b.input) }));
      return {
        text: joined(content, 'text', 'text'),
        thought: joined(content, 'thinking', 'thinking'),
        calls,
        stop: stop_reason,
        used: { fresh: usage.input_tokens, cached: usage.cache_read_input_tokens, created: usage.cache_creation_input_tokens, output: usage.output_tokens }
      };
    }
  };
}
