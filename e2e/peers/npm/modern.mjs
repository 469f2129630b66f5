// An MCP server that speaks 2026-07-28 and nothing older, on the TypeScript SDK v2. Its tools,
// prompts and resources have the names of server-everything's, so that one list of checks serves
// both.
//
//   node modern.mjs            over stdio
//   node modern.mjs both       over stdio, in the legacy revision too, which is the default of the SDK
//   node modern.mjs PORT       over HTTP, at http://127.0.0.1:PORT/mcp
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

import {
  acceptedContent,
  completable,
  createMcpHandler,
  inputRequired,
  McpServer,
  ResourceTemplate
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod/v4';

const text = (t) => ({ content: [{ type: 'text', text: t }] });
const watched = 'demo://resource/dynamic/text/1';
const teams = { Engineering: ['Alice', 'Bob'], Sales: ['David', 'Eve'] };

// What the tools remember from one call to the next. Over HTTP each request has a server of its own.
const cancelled = [];
let announce = () => {};

function factory() {
  const server = new McpServer(
    { name: 'modern', version: '1.0.0' },
    { capabilities: { tools: {}, prompts: {}, completions: {}, logging: {}, resources: { subscribe: true } } }
  );
  addTools(server);
  addInputTools(server);
  addResources(server);
  addPrompts(server);
  if (!port) announce = () => server.server.sendResourceUpdated({ uri: watched });
  return server;
}

function addTools(server) {
  server.registerTool('echo', { inputSchema: z.object({ message: z.string() }) }, async ({ message }) =>
    text(`Echo: ${message}`)
  );
  server.registerTool(
    'trigger-long-running-operation',
    { inputSchema: z.object({ duration: z.number(), steps: z.number() }) },
    longRunning
  );
  server.registerTool('cancelled-calls', {}, async () => text(JSON.stringify(cancelled)));
  server.registerTool('toggle-subscriber-updates', {}, async () => {
    await announce();
    return text('announced');
  });
  server.registerTool('toggle-simulated-logging', {}, async (ctx) => {
    await ctx.mcpReq.log('info', 'one line of log');
    return text('logged');
  });
}

async function longRunning({ duration, steps }, ctx) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  for (let step = 1; step <= steps; step++) {
    try {
      await sleep((duration * 1000) / steps, undefined, { signal: ctx.mcpReq.signal });
    } catch (e) {
      cancelled.push(duration);
      throw e;
    }
    if (progressToken !== undefined) {
      await ctx.mcpReq.notify({
        method: 'notifications/progress',
        params: { progress: step, total: steps, progressToken }
      });
    }
  }
  return text(`Long running operation completed. Duration: ${duration} seconds, Steps: ${steps}.`);
}

// Tools that ask the client for something first: the answer to the first call is the question.
function addInputTools(server) {
  server.registerTool('trigger-elicitation-request', {}, async (ctx) => {
    const given = acceptedContent(ctx.mcpReq.inputResponses, 'who');
    if (given) return text(`Name: ${given.name}`);
    const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
    return inputRequired({ inputRequests: { who: inputRequired.elicit({ message: 'Who?', requestedSchema }) } });
  });
  server.registerTool(
    'trigger-sampling-request',
    { inputSchema: z.object({ prompt: z.string() }) },
    async ({ prompt }, ctx) => {
      const given = ctx.mcpReq.inputResponses?.sample;
      if (given) return text(`LLM sampling result: ${JSON.stringify(given)}`);
      const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
      return inputRequired({ inputRequests: { sample: inputRequired.createMessage({ messages, maxTokens: 10 }) } });
    }
  );
  server.registerTool('get-roots-list', {}, async (ctx) => {
    const given = ctx.mcpReq.inputResponses?.roots;
    if (given) return text(`Current MCP Roots: ${JSON.stringify(given)}`);
    // The Go SDK takes no request without params, though it need not have any.
    return inputRequired({ inputRequests: { roots: { ...inputRequired.listRoots(), params: {} } } });
  });
}

function addResources(server) {
  server.registerResource('notes', 'demo://resource/static/notes', { mimeType: 'text/plain' }, async (uri) => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'notes of the modern server' }]
  }));
  const positive = (value) => (Number(value) > 0 ? [value] : []);
  const template = new ResourceTemplate('demo://resource/dynamic/text/{resourceId}', {
    list: undefined,
    complete: { resourceId: positive }
  });
  server.registerResource('dynamic', template, { mimeType: 'text/plain' }, async (uri, { resourceId }) => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: `Resource ${resourceId}: modern` }]
  }));
}

function addPrompts(server) {
  const message = (t) => ({ messages: [{ role: 'user', content: { type: 'text', text: t } }] });
  server.registerPrompt('args-prompt', { argsSchema: z.object({ city: z.string() }) }, ({ city }) =>
    message(`What's weather in ${city}?`)
  );
  const department = completable(z.string(), (v) => Object.keys(teams).filter((d) => d.startsWith(v)));
  const name = completable(z.string(), (v, context) =>
    (teams[context?.arguments?.department] ?? []).filter((n) => n.startsWith(v))
  );
  server.registerPrompt('completable-prompt', { argsSchema: z.object({ department, name }) }, (args) =>
    message(`Please promote ${args.name} to the head of the ${args.department} team.`)
  );
}

// serveHTTP gives node's requests to a handler that knows only the web's.
function serveHTTP(port) {
  const handler = createMcpHandler(factory, { legacy: 'reject' });
  announce = () => handler.notify.resourceUpdated(watched);
  const http = createServer(async (req, res) => {
    const gone = new AbortController();
    res.on('close', () => gone.abort());
    const body = req.method === 'POST' ? Readable.toWeb(req) : undefined;
    const url = `http://${req.headers.host}${req.url}`;
    const answer = await handler.fetch(
      new Request(url, { method: req.method, headers: req.headers, body, duplex: 'half', signal: gone.signal })
    );
    res.writeHead(answer.status, Object.fromEntries(answer.headers)).flushHeaders();
    if (answer.body) for await (const chunk of answer.body) res.write(chunk);
    res.end();
  });
  http.listen(port, '127.0.0.1', () => console.error(`listening on ${http.address().port}`));
}

const both = process.argv[2] === 'both';
const port = both ? undefined : process.argv[2];
if (port) serveHTTP(Number(port));
else if (both) serveStdio(factory);
else serveStdio(factory, { legacy: 'reject' });
