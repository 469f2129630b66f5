// What the official SDKs of the model providers must be able to do through the gateway, said once
// for the three shapes.
//
//   node model.mjs WORLD
//
// WORLD is JSON: where to ask and with which key, in which shape and whether streamed, and what the
// provider's script will say. One line of JSON leaves for each check: {name, ok, detail, ms, used},
// where used is what the SDK said that each request used; the test holds it against the bill.
import assert from 'node:assert/strict';

import * as anthropic from './model-anthropic.mjs';
import * as openai from './model-openai.mjs';

const limit = 20_000; // of one check, in ms
const world = JSON.parse(process.argv[2]);
const from = world.shape === 'messages' ? anthropic : openai;
const open = (more) => from[world.shape]({ retries: 0, ...world, ...more });
const { saga } = world;

const stops = {
  chat: { end: 'stop', tools: 'tool_calls' },
  responses: { end: 'completed', tools: 'completed' },
  messages: { end: 'end_turn', tools: 'tool_use' }
}[world.shape];

// said holds an answer against the step of the script that it is.
function said(answer, step, stop) {
  assert.equal(answer.text, step.Text ?? '', 'another text');
  assert.deepEqual(answer.calls, (step.Calls ?? []).map((c) => ({ id: c.ID, name: c.Name, args: c.Args })), 'other calls');
  assert.equal(answer.stop, stop, 'another end');
  if (world.shape !== 'chat') assert.equal(answer.thought, step.Think ?? '', 'other thoughts');
}

// begin is a talk in which the user has said something.
function begin(model, more) {
  const talk = open(more).talk(model);
  talk.user(saga.Task);
  return talk;
}

// refused is the error of a request that must not be answered.
async function refused(talk, name, status, says) {
  const e = await talk.ask().then((a) => assert.fail(`answered ${JSON.stringify(a)}`), (e) => e);
  assert.ok(e instanceof from.errors[name], `a ${e.constructor.name}, not a ${name}: ${e.message}`);
  if (status) assert.equal(e.status, status);
  assert.match(e.message, says);
  return `${name}: ${e.message}`;
}

const everywhere = {
  async say() {
    let heard = '';
    const answer = await begin('test-say').ask({ onText: (delta) => (heard += delta) });
    said(answer, world.says, stops.end);
    if (world.stream) assert.equal(heard, world.says.Text, 'the stream said something else than its end');
    return [answer.used];
  },
  async calls() {
    const talk = begin('test-calls');
    const first = await talk.ask();
    said(first, world.calls, stops.tools);
    talk.results(first.calls.map((c) => ({ id: c.id, text: `the result of ${c.id}` })));
    const second = await talk.ask();
    said(second, world.says, stops.end);
    return [first.used, second.used];
  },
  async agent() {
    const talk = begin('test-agent');
    const used = [];
    for (const turn of saga.Turns) {
      const answer = await talk.ask();
      said(answer, { Think: turn.Think, Text: turn.Say, Calls: turn.Uses }, stops.tools);
      talk.results(turn.Uses.map((u) => ({ id: u.ID, text: u.Result, failed: u.Failed })));
      used.push(answer.used);
    }
    const end = await talk.ask();
    said(end, { Text: saga.Final }, stops.end);
    return [...used, end.used];
  },
  async 'retried by the SDK'() {
    const answer = await begin('test-busy', { retries: 2 }).ask();
    said(answer, world.says, stops.end);
    return [answer.used];
  },
  'rate limited': () => refused(begin('test-limited'), 'RateLimitError', 429, /./),
  'wrong key': () => refused(begin('test-say', { key: 'sk-wrong' }), 'AuthenticationError', 401, /key/),
  async 'bad request'() {
    const talk = begin('test-say');
    talk.results([{ id: 'call_nobody', text: 'an answer to no question' }]);
    return refused(talk, 'BadRequestError', 400, world.shape === 'messages' ? /tool_result/ : /call/);
  },
  'unknown model': () => refused(begin('nobody-knows'), 'NotFoundError', 404, /nobody-knows/),
  overloaded: () => refused(begin('test-down'), 'InternalServerError', world.shape === 'messages' ? 529 : 503, /./),
  async 'breaks off'() {
    const e = await begin('test-cut').ask().then((a) => assert.fail(`answered ${a.text}`), (e) => e);
    assert.match(`${e.message} ${e.cause?.message}`, /terminated|closed|Unexpected end/, 'not that the connection broke');
    return `${e.constructor.name}: ${e.message}`;
  },
  async abort() {
    const stop = new AbortController();
    let heard = 0;
    const onText = () => ++heard === 2 && stop.abort();
    if (!world.stream) setTimeout(() => stop.abort(), 200);
    const e = await begin('test-slow').ask({ signal: stop.signal, onText }).then((a) => assert.fail(`answered ${a.text}`), (e) => e);
    assert.ok(e instanceof from.errors.APIUserAbortError, `${e.constructor.name}: ${e.message}`);
    if (world.stream) assert.ok(heard >= 2 && heard < 10, `${heard} pieces`);
  },
  async models() {
    const sdk = open();
    assert.deepEqual((await sdk.models.list()).sort(), world.models.toSorted());
    assert.equal(await sdk.models.one('test-say'), 'test-say');
    await assert.rejects(sdk.models.one('nobody-knows'), (e) => e instanceof from.errors.NotFoundError);
  }
};

// What not every shape has.
const streamed = { 'fails in the stream': () => refused(begin('test-broken'), 'APIError', 0, /./) };

const counted = {
  async count() {
    const n = await open().count('test-count', saga.Task);
    const { used } = await begin('test-count').ask();
    assert.equal(used.fresh + used.cached + used.created, n);
    return [used];
  }
};

const runnable = {
  async runner() {
    const uses = saga.Turns.flatMap((t) => t.Uses);
    const end = await open().run('test-runner', saga.Task, (name) => {
      assert.equal(name, uses[0]?.Name, 'called another tool');
      return uses.shift().Result;
    });
    assert.equal(end, saga.Final);
    assert.equal(uses.length, 0, 'calls were not made');
  }
};

// What only a gateway does.
const gateway = {
  async 'retried by the gateway'() {
    const answer = await begin('patient').ask();
    said(answer, world.says, stops.end);
    return [answer.used];
  },
  async fallback() {
    const answer = await begin('over').ask();
    said(answer, world.says, stops.end);
    return [answer.used];
  },
  'nobody there': () => refused(begin('gone'), 'InternalServerError', 502, /not available/)
};

const checks = {
  ...everywhere,
  ...(world.stream && streamed),
  ...(world.shape === 'messages' && counted),
  ...(world.shape !== 'responses' && runnable),
  ...(world.gateway && gateway)
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
