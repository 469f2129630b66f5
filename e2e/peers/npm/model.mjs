// Checks of the official SDKs of the model providers through the gateway, for all three shapes.
//
//   node model.mjs SETUP
//
// SETUP is JSON: URL and key, shape and streaming, and the provider's script. Each check prints one line of JSON: {name, ok,
// detail, ms, used}, where used is the usage that the SDK reports, which the test compares with the bill.
import assert from 'node:assert/strict';

import * as anthropic from './model-anthropic.mjs';
import * as openai from './model-openai.mjs';

const limit = 20_000; // per check, in ms
const setup = JSON.parse(process.argv[2]);
const from = setup.shape === 'messages' ? anthropic : openai;
const open = (more) => from[setup.shape]({ retries: 0, ...setup, ...more });
const { conversation } = setup;

const stops = {
  chat: { end: 'stop', tools: 'tool_calls' },
  responses: { end: 'completed', tools: 'completed' },
  messages: { end: 'end_turn', tools: 'tool_use' }
}[setup.shape];

// requireReply compares a reply with the step of the script.
function requireReply(answer, step, stop) {
  assert.equal(answer.text, step.Text ?? '', 'another text');
  assert.deepEqual(answer.calls, (step.Calls ?? []).map((c) => ({ id: c.ID, name: c.Name, args: c.Args })), 'other calls');
  assert.equal(answer.stop, stop, 'another end');
  if (setup.shape !== 'chat') assert.equal(answer.thought, step.Thinking ?? '', 'other thoughts');
}

// begin returns a conversation with a first user message.
function begin(model, more) {
  const talk = open(more).talk(model);
  talk.user(conversation.Task);
  return talk;
}

// refused returns the error of a request that must fail.
async function refused(talk, name, status, says) {
  const e = await talk.ask().then((a) => assert.fail(`answered ${JSON.stringify(a)}`), (e) => e);
  assert.ok(e instanceof from.errors[name], `a ${e.constructor.name}, not a ${name}: ${e.message}`);
  if (status) assert.equal(e.status, status);
  assert.match(e.message, says);
  return `${name}: ${e.message}`;
}

const everywhere = {
  async say() {
    let received = '';
    const answer = await begin('test-say').ask({ onText: (delta) => (received += delta) });
    requireReply(answer, setup.says, stops.end);
    if (setup.stream) assert.equal(received, setup.says.Text, 'the stream differs from its final message');
    return [answer.used];
  },
  async calls() {
    const talk = begin('test-calls');
    const first = await talk.ask();
    requireReply(first, setup.calls, stops.tools);
    talk.results(first.calls.map((c) => ({ id: c.id, text: `the result of ${c.id}` })));
    const second = await talk.ask();
    requireReply(second, setup.says, stops.end);
    return [first.used, second.used];
  },
  async agent() {
    const talk = begin('test-agent');
    const used = [];
    for (const turn of conversation.Turns) {
      const answer = await talk.ask();
      requireReply(answer, { Thinking: turn.Thinking, Text: turn.Text, Calls: turn.ToolUses }, stops.tools);
      talk.results(turn.ToolUses.map((u) => ({ id: u.ID, text: u.Result, failed: u.IsError })));
      used.push(answer.used);
    }
    const end = await talk.ask();
    requireReply(end, { Text: conversation.Final }, stops.end);
    return [...used, end.used];
  },
  async 'retried by the SDK'() {
    const answer = await begin('test-busy', { retries: 2 }).ask();
    requireReply(answer, setup.says, stops.end);
    return [answer.used];
  },
  'rate limited': () => refused(begin('test-limited'), 'RateLimitError', 429, /./),
  'wrong key': () => refused(begin('test-say', { key: 'sk-wrong' }), 'AuthenticationError', 401, /key/),
  async 'bad request'() {
    const talk = begin('test-say');
    talk.results([{ id: 'call_nobody', text: 'an answer to no question' }]);
    return refused(talk, 'BadRequestError', 400, setup.shape === 'messages' ? /tool_result/ : /call/);
  },
  'unknown model': () => refused(begin('unknown-model'), 'NotFoundError', 404, /unknown-model/),
  overloaded: () => refused(begin('test-down'), 'InternalServerError', setup.shape === 'messages' ? 529 : 503, /./),
  async 'breaks off'() {
    const e = await begin('test-cut').ask().then((a) => assert.fail(`answered ${a.text}`), (e) => e);
    assert.match(`${e.message} ${e.cause?.message}`, /terminated|closed|Unexpected end/, 'not that the connection broke');
    return `${e.constructor.name}: ${e.message}`;
  },
  async abort() {
    const stop = new AbortController();
    let received = 0;
    const onText = () => ++received === 2 && stop.abort();
    if (!setup.stream) setTimeout(() => stop.abort(), 200);
    const e = await begin('test-slow').ask({ signal: stop.signal, onText }).then((a) => assert.fail(`answered ${a.text}`), (e) => e);
    assert.ok(e instanceof from.errors.APIUserAbortError, `${e.constructor.name}: ${e.message}`);
    if (setup.stream) assert.ok(received >= 2 && received < 10, `${received} pieces`);
  },
  async models() {
    const sdk = open();
    assert.deepEqual((await sdk.models.list()).sort(), setup.models.toSorted());
    assert.equal(await sdk.models.one('test-say'), 'test-say');
    await assert.rejects(sdk.models.one('unknown-model'), (e) => e instanceof from.errors.NotFoundError);
  }
};

// Checks for some shapes.
const streamed = { 'fails in the stream': () => refused(begin('test-broken'), 'APIError', 0, /./) };

const counted = {
  async count() {
    const n = await open().count('test-count', conversation.Task);
    const { used } = await begin('test-count').ask();
    assert.equal(used.fresh + used.cached + used.created, n);
    return [used];
  }
};

const runnable = {
  async runner() {
    const uses = conversation.Turns.flatMap((t) => t.ToolUses);
    const end = await open().run('test-runner', conversation.Task, (name) => {
      assert.equal(name, uses[0]?.Name, 'called another tool');
      return uses.shift().Result;
    });
    assert.equal(end, conversation.Final);
    assert.equal(uses.length, 0, 'calls were not made');
  }
};

// Checks for a gateway only.
const gateway = {
  async 'retried by the gateway'() {
    const answer = await begin('patient').ask();
    requireReply(answer, setup.says, stops.end);
    return [answer.used];
  },
  async fallback() {
    const answer = await begin('over').ask();
    requireReply(answer, setup.says, stops.end);
    return [answer.used];
  },
  'provider unreachable': () => refused(begin('gone'), 'InternalServerError', 502, /not available/)
};

const checks = {
  ...everywhere,
  ...(setup.stream && streamed),
  ...(setup.shape === 'messages' && counted),
  ...(setup.shape !== 'responses' && runnable),
  ...(setup.gateway && gateway)
};

for (const [name, run] of Object.entries(checks)) {
  const began = Date.now();
  let timer;
  const late = new Promise((_, no) => (timer = setTimeout(() => no(new Error('no answer in time')), limit)));
  const line = { name };
  try {
    const found = await Promise.race([run(), late]);
    Object.assign(line, { ok: true }, Array.isArray(found) ? { used: found } : { detail: found ?? '' });
  } catch (e) {
    Object.assign(line, { ok: false, detail: `${e.message}\n${(e.stack ?? '').split('\n').filter((l) => l.includes('.mjs')).slice(0, 4).join('\n')}` });
  } finally {
    clearTimeout(timer);
  }
  console.log(JSON.stringify({ ...line, ms: Date.now() - began }));
}
console.log(JSON.stringify({ name: 'close', ok: true, detail: '', ms: 0 }));
process.exit(0);
