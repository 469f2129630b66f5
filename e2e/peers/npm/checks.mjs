// Checks of a client of the gateway, for every SDK.
//
//   node v1.mjs SETUP      node v2.mjs SETUP
//
// SETUP is JSON: how to reach the server under test (target: command, args, cwd, env or url), the protocol revision, whether
// there is a gateway, and the servers behind it. Each check prints one line of JSON: {name, ok, detail, ms}. Without a gateway
// the same checks run with the server's own names, which tests the checks themselves.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const limit = 10_000; // per request, in ms
const settle = 20_000; // until all servers are listed

let last = Date.now();
function say(name, ok, detail = '') {
  const ms = Date.now() - last;
  last += ms;
  console.log(JSON.stringify({ name, ok, detail: String(detail), ms }));
}

export async function main(open) {
  const setup = JSON.parse(process.argv[2]);
  const received = { asked: [], log: [], updated: [] };
  let peer;
  try {
    peer = await open({ ...setup, limit, capabilities: { sampling: {}, elicitation: {}, roots: {} }, on: handlers(setup, received) });
    say('connect', peer.version === setup.version, `speaks ${peer.version}, wanted ${setup.version}`);
  } catch (e) {
    say('connect', false, e.stack);
    process.exit(1);
  }
  const c = { peer, setup, received, text, until };
  await check('tools-list', () => toolsList(c));
  for (const server of setup.servers) {
    for (const [name, run] of Object.entries(checksOf[server.kind])) {
      await check(`${server.id}/${name}`, () => run({ ...c, server, own: (n) => (setup.gateway ? `${server.id}::${n}` : n) }));
    }
  }
  if (setup.gateway) for (const [name, run] of Object.entries(gatewayChecks)) await check(name, () => run(c));
  await check('close', () => peer.close());
  process.exit(0); // a server may still hold a pipe open
}

// check has a time limit: a request that never ends fails only its own check.
async function check(name, run) {
  let timer;
  const late = new Promise((_, no) => (timer = setTimeout(() => no(new Error('no answer in time')), limit + settle)));
  try {
    say(name, true, await Promise.race([run(), late]));
  } catch (e) {
    say(name, false, `${e.message}\n${(e.stack ?? '').split('\n').filter((l) => l.includes('.mjs')).slice(0, 3).join('\n')}`);
  } finally {
    clearTimeout(timer);
  }
}

// handlers answer servers' requests.
function handlers(setup, received) {
  const asked = (method, answer) => async (request, extra) => {
    received.asked.push({ method, params: request.params, id: extra?.requestId ?? extra?.mcpReq?.id });
    return answer(request);
  };
  return {
    sampling: asked('sampling', () => ({ model: 'peers', role: 'assistant', content: { type: 'text', text: 'sampled by peers' } })),
    elicitation: asked('elicitation', () => ({ action: 'accept', content: { name: 'Ada' } })),
    roots: asked('roots', () => ({ roots: [{ uri: pathToFileURL(setup.root).href, name: 'the-root' }] })),
    log: (params) => received.log.push(params),
    updated: (params) => received.updated.push(params.uri)
  };
}

const text = (result) => result.content.filter((c) => c.type === 'text').map((c) => c.text).join('\n');

async function until(what, ask, ms = limit) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(50)) if (await ask()) return;
  throw new Error(`${what}: not within ${ms} ms`);
}

async function all({ peer }, kind, more) {
  const items = [];
  const seen = new Set();
  let cursor;
  do {
    const page = await peer.page(kind, { ...more, cursor });
    items.push(...page[kind]);
    cursor = page.nextCursor;
    assert.ok(!seen.has(cursor), `cursor ${cursor} came twice`);
    seen.add(cursor);
  } while (cursor);
  return items;
}

// toolsList waits until every server is listed, then checks the whole list (A3, A6).
async function toolsList(c) {
  const { setup } = c;
  let names = [];
  const missing = () => setup.servers.filter((s) => !names.includes(setup.gateway ? `${s.id}::${sample[s.kind]}` : sample[s.kind]));
  await until('all servers in tools/list', async () => {
    names = (await all(c, 'tools')).map((t) => t.name);
    return missing().length === 0;
  }, settle).catch((e) => assert.fail(`${e.message}: missing ${missing().map((s) => s.id)}; got ${names}`));
  // server-everything adds tools once it knows what its client can do.
  await until('the same tools/list twice', async () => {
    const before = names.join();
    names = (await all(c, 'tools')).map((t) => t.name);
    return names.join() === before;
  }, settle);
  assert.equal(new Set(names).size, names.length, 'a name twice');
  if (setup.gateway) {
    const own = names.filter((n) => !setup.servers.some((s) => n.startsWith(`${s.id}::`)));
    assert.deepEqual(own, ['pruner::health', 'pruner::prune_text', 'pruner::recover_text', 'recover_text'], 'names of no configured server');
    assert.deepEqual((await all(c, 'tools')).map((t) => t.name), names, 'the order changed');
  }
  await c.peer.learnTools(); // the SDK's own list call, by which it learns the output schemas
  return `${names.length} tools`;
}

const sample = { everything: 'echo', filesystem: 'read_text_file', memory: 'read_graph' };

const everything = {
  async echo({ peer, own }) {
    const message = 'hi — é 😀 "quoted" \\ \u0001';
    assert.equal(text(await peer.call({ name: own('echo'), arguments: { message } })), `Echo: ${message}`);
  },
  async 'tool-error'({ peer, own }) {
    const outcome = await peer.call({ name: own('echo'), arguments: { message: 5 } }).catch((e) => e);
    assert.ok(outcome instanceof Error || outcome.isError, `a wrong argument was accepted: ${JSON.stringify(outcome)}`);
    const unknown = await peer.call({ name: own('no-such-tool'), arguments: {} }).catch((e) => e);
    assert.ok(unknown instanceof Error || unknown.isError, `an unknown tool answered: ${JSON.stringify(unknown)}`);
  },
  async resources(c) {
    const { peer, setup, server } = c;
    const resources = (await all(c, 'resources')).filter((r) => belongs(r.uri, server, setup));
    assert.ok(resources.length > 0, 'no resources');
    const { uri } = resources[0];
    const { contents } = await peer.read(uri);
    assert.ok(contents[0].text?.length > 0, 'empty');
    assert.equal(contents[0].uri, uri, 'the contents name another resource');
    return `${resources.length} resources`;
  },
  async templates(c) {
    const template = await textTemplate(c);
    const uri = template.uriTemplate.replace('{resourceId}', '7');
    const { contents } = await c.peer.read(uri);
    assert.match(contents[0].text, /^Resource 7: /);
    return uri;
  },
  async 'resource-unknown'({ peer, setup, server }) {
    const nowhere = 'demo://resource/nowhere';
    await assert.rejects(peer.read(setup.gateway ? wrap(server.id, nowhere) : nowhere));
  },
  async prompts(c) {
    const { peer, own } = c;
    const names = (await all(c, 'prompts')).map((p) => p.name);
    assert.ok(names.includes(own('args-prompt')), `no args-prompt in ${names}`);
    const { messages } = await peer.prompt(own('args-prompt'), { city: 'Paris' });
    assert.equal(messages[0].content.text, "What's weather in Paris?");
  },
  async completion(c) {
    const { peer, own } = c;
    const ref = { type: 'ref/prompt', name: own('completable-prompt') };
    const first = await peer.complete({ ref, argument: { name: 'department', value: 'E' } });
    assert.deepEqual(first.completion.values, ['Engineering']);
    const context = { arguments: { department: 'Engineering' } };
    const second = await peer.complete({ ref, argument: { name: 'name', value: 'A' }, context });
    assert.deepEqual(second.completion.values, ['Alice']);
    const { uriTemplate } = await textTemplate(c);
    const third = await peer.complete({ ref: { type: 'ref/resource', uri: uriTemplate }, argument: { name: 'resourceId', value: '5' } });
    assert.deepEqual(third.completion.values, ['5']);
  },
  async logging({ peer, own, received, server, until }) {
    // 2026-07-28 has no session log level: the call sets it.
    const _meta = peer.setLevel ? undefined : { 'io.modelcontextprotocol/logLevel': 'debug' };
    await peer.setLevel?.('debug');
    const before = received.log.length;
    const call = { name: own('toggle-simulated-logging'), arguments: {}, _meta };
    await peer.call(call);
    // A legacy server logs per session; the call is not known.
    if (peer.setLevel || server.revision === 'modern') await until('a log message', () => received.log.length > before);
    if (server.revision === 'legacy') await peer.call(call); // off again
  },
  async subscribe(c) {
    const { peer, own, received, server, until } = c;
    const uri = (await textTemplate(c)).uriTemplate.replace('{resourceId}', '1');
    const end = await peer.subscribe(uri);
    received.updated.length = 0;
    await peer.call({ name: own('toggle-subscriber-updates'), arguments: {} });
    await until('notifications/resources/updated', () => received.updated.length > 0);
    assert.equal(received.updated[0], uri, 'another resource was updated');
    if (server.revision === 'legacy') await peer.call({ name: own('toggle-subscriber-updates'), arguments: {} });
    await end();
  },
  async progress({ peer, own, setup }) {
    const reported = [];
    const call = { name: own('trigger-long-running-operation'), arguments: { duration: 0.4, steps: 4 } };
    // The SDK v2 also reports progress of its own, without a total, after an elicitation.
    const result = await peer.call(call, { onprogress: (p) => p.total && reported.push(p) });
    assert.match(text(result), /completed/);
    const seen = delivered(reported, (p) => p.progress, setup);
    // Late ones may arrive after the result and are not counted.
    assert.ok(seen.length >= 2, `${seen.length} notifications`);
    assert.ok(seen.every((p, i) => p.total === 4 && p.progress > (seen[i - 1]?.progress ?? 0)), JSON.stringify(seen));
  },
  async cancellation({ peer, own, server, until }) {
    const stop = new AbortController();
    const duration = 61;
    const began = Date.now();
    setTimeout(() => stop.abort('enough'), 300);
    const call = { name: own('trigger-long-running-operation'), arguments: { duration, steps: 1 } };
    await assert.rejects(peer.call(call, { signal: stop.signal }));
    assert.ok(Date.now() - began < limit, 'the call went on');
    assert.match(text(await peer.call({ name: own('echo'), arguments: { message: 'still here' } })), /still here/);
    if (server.revision === 'modern') {
      const isCancelled = async () => text(await peer.call({ name: own('cancelled-calls'), arguments: {} })).includes(`${duration}`);
      await until('the server to learn of the cancellation', isCancelled);
    }
  },
  async sampling({ peer, own, received, setup, server }) {
    const prompt = `why ${server.id}?`;
    received.asked.length = 0;
    const result = await peer.call({ name: own('trigger-sampling-request'), arguments: { prompt, maxTokens: 10 } });
    assert.match(text(result), /sampled by peers/);
    asked(received, 'sampling', prompt, setup, server);
  },
  async elicitation({ peer, own, received, setup, server }) {
    received.asked.length = 0;
    const result = await peer.call({ name: own('trigger-elicitation-request'), arguments: {} });
    assert.match(text(result), /Name: Ada/);
    asked(received, 'elicitation', '', setup, server);
  },
  async roots({ peer, own }) {
    assert.match(text(await peer.call({ name: own('get-roots-list'), arguments: {} })), /the-root/);
  }
};

// delivered removes what was delivered again. server-everything over HTTP sends the messages of all streams again to a
// client that resumes one of them, and the SDKs resume a stream that ends before its response. The gateway must not.
function delivered(messages, key, setup) {
  if (setup.gateway) return messages;
  const keys = messages.map(key);
  return messages.filter((m, i) => keys[i] === undefined || keys.indexOf(keys[i]) === i);
}

// asked checks that the client was asked once, and that the request names its server (A5). A modern server does not
// send a request, it answers one that names it; and the SDK v2 passes on no _meta of a sampling request.
function asked(received, method, contains, setup, server) {
  const requests = delivered(received.asked.filter((r) => r.method === method), (r) => r.id, setup);
  assert.equal(requests.length, 1, `asked ${requests.length} times`);
  assert.ok(JSON.stringify(requests[0].params).includes(contains), 'asked something else');
  const namesServer = setup.revision === 'legacy' || (server.revision === 'legacy' && method === 'elicitation');
  if (setup.gateway && namesServer) assert.equal(requests[0].params._meta?.['ctxgate/server'], server.id, 'A5: _meta["ctxgate/server"]');
}

const wrap = (server, uri) => `proxy://resource/${Buffer.from(JSON.stringify({ server, uri })).toString('base64url')}`;

function belongs(uri, server, setup) {
  if (!setup.gateway) return true;
  assert.match(uri, /^proxy:\/\/resource\/[\w-]+$/, 'A3');
  return JSON.parse(Buffer.from(uri.split('/').pop(), 'base64url')).server === server.id;
}

// textTemplate is the template of the text resources. Whatever the gateway makes of it must still
// have its variable, or no client could fill it in; whose it is shows when it is read.
async function textTemplate(c) {
  const templates = await all(c, 'resourceTemplates');
  for (const t of templates.filter((t) => t.uriTemplate.includes('{resourceId}') && t.mimeType === 'text/plain')) {
    if (!c.setup.gateway || templateServer(t.uriTemplate) === c.server.id) return t;
  }
  throw new Error(`no template in ${JSON.stringify(templates.map((t) => t.uriTemplate))}`);
}

// templateServer finds the server's id wherever the gateway put it: in plain text or in base64.
function templateServer(uriTemplate) {
  for (const part of uriTemplate.split(/[/{}?&=]/)) {
    const m = /"server":"([^"]+)"/.exec(Buffer.from(part, 'base64url').toString());
    if (m) return m[1];
  }
  return ['everything', 'modern'].find((id) => uriTemplate.split(/[^\w-]/).includes(id));
}

const filesystem = {
  async list({ peer, own, setup }) {
    const result = await peer.call({ name: own('list_directory'), arguments: { path: setup.root } });
    assert.match(text(result), /big\.txt/);
  }
};

const memory = {
  async graph({ peer, own }) {
    const entities = [{ name: `ctxgate-${process.pid}`, entityType: 'gateway', observations: ['it remembers'] }];
    await peer.call({ name: own('create_entities'), arguments: { entities } });
    assert.match(text(await peer.call({ name: own('read_graph'), arguments: {} })), new RegExp(entities[0].name));
  }
};

// What only the gateway does: it pages as configured (A6); a long result is cut (G3) and can be
// read back (G+1).
const gatewayChecks = {
  async pages(c) {
    for (const kind of ['tools', 'prompts', 'resources', 'resourceTemplates']) {
      const whole = await all(c, kind);
      assert.deepEqual(await all(c, kind, { limit: 3 }), whole, `${kind} in pages of 3 are not those in one`);
      assert.ok((await c.peer.page(kind, { limit: 3 }))[kind].length <= 3, `a page of ${kind} is longer than 3`);
    }
  },
  async recover({ peer, setup }) {
    const files = setup.servers.find((s) => s.kind === 'filesystem');
    const path = `${setup.root}/big.txt`;
    const original = await readFile(path, 'utf8');
    const masked = text(await peer.call({ name: `${files.id}::read_text_file`, arguments: { path } }));
    assert.ok(masked.length < original.length / 10, `not masked: ${masked.length} of ${original.length}`);
    const line = /\[recover: prune_id=(prn_[\w-]+) chars=(\d+)-(\d+)\]/.exec(masked);
    assert.ok(line, `no recover line in ${masked.slice(1900, 2300)}`);
    const whole = raw(await peer.call({ name: 'recover_text', arguments: { prune_id: line[1] } }));
    assert.equal(whole, original, 'recover_text gave other bytes');
    const ranges = [{ start_line: 5000, end_line: 5001 }];
    const two = raw(await peer.call({ name: 'recover_text', arguments: { prune_id: line[1], ranges, include_line_numbers: true } }));
    const lines = original.split('\n');
    assert.equal(two.trimEnd(), `5000│ ${lines[4999]}\n5001│ ${lines[5000]}`);
    return `${original.length} characters came as ${masked.length}, and came back`;
  },
  async 'recover-unknown'({ peer }) {
    const outcome = await peer.call({ name: 'recover_text', arguments: { prune_id: 'prn_nobody' } }).catch((e) => e);
    assert.ok(outcome instanceof Error || outcome.isError, `an unknown prune_id gave ${JSON.stringify(outcome)}`);
  }
};

// raw is the text recover_text gives back: the document of the specification, or the text itself.
function raw(result) {
  assert.ok(!result.isError, text(result));
  if (typeof result.structuredContent?.raw_text === 'string') return result.structuredContent.raw_text;
  try {
    return JSON.parse(text(result)).raw_text ?? text(result);
  } catch {
    return text(result);
  }
}

const checksOf = { everything, filesystem, memory };
