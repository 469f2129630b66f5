// A client on the TypeScript SDK v1: the handshake of 2025-11-25 and older. See checks.mjs.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import * as types from '@modelcontextprotocol/sdk/types.js';

import { main } from './checks.mjs';

const pages = {
  tools: ['tools/list', types.ListToolsResultSchema],
  prompts: ['prompts/list', types.ListPromptsResultSchema],
  resources: ['resources/list', types.ListResourcesResultSchema],
  resourceTemplates: ['resources/templates/list', types.ListResourceTemplatesResultSchema]
};

async function open({ target, capabilities, on, limit }) {
  const client = new Client({ name: 'peers-v1', version: '1.0.0' }, { capabilities });
  client.setRequestHandler(types.CreateMessageRequestSchema, on.sampling);
  client.setRequestHandler(types.ElicitRequestSchema, on.elicitation);
  client.setRequestHandler(types.ListRootsRequestSchema, on.roots);
  client.setNotificationHandler(types.LoggingMessageNotificationSchema, (n) => on.log(n.params));
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (n) => on.updated(n.params));
  const transport = target.url
    ? new StreamableHTTPClientTransport(new URL(target.url))
    : new StdioClientTransport({ ...target, stderr: 'inherit' });
  let version;
  transport.setProtocolVersion = new Proxy(transport.setProtocolVersion ?? (() => {}), {
    apply: (f, self, [v]) => ((version = v), f.call(self, v))
  });
  await client.connect(transport, { timeout: limit });
  const options = { timeout: limit };
  return {
    version,
    close: () => client.close(),
    page: (kind, params) => client.request({ method: pages[kind][0], params }, pages[kind][1], options),
    learnTools: () => client.listTools(undefined, options),
    call: (params, more) => client.callTool(params, undefined, { ...options, ...more }),
    read: (uri) => client.readResource({ uri }, options),
    prompt: (name, args) => client.getPrompt({ name, arguments: args }, options),
    complete: (params) => client.complete(params, options),
    setLevel: (level) => client.setLoggingLevel(level, options),
    async subscribe(uri) {
      await client.subscribeResource({ uri }, options);
      return () => client.unsubscribeResource({ uri }, options);
    }
  };
}

await main(open);
