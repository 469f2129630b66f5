// A client on the TypeScript SDK v2: 2026-07-28, or the revisions before it, as configured. See checks.mjs.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { main } from './checks.mjs';

const methods = {
  tools: 'tools/list',
  prompts: 'prompts/list',
  resources: 'resources/list',
  resourceTemplates: 'resources/templates/list'
};

async function open({ target, revision, capabilities, on, limit }) {
  const mode = revision === 'modern' ? { pin: '2026-07-28' } : revision;
  const client = new Client(
    { name: 'peers-v2', version: '1.0.0' },
    { capabilities, versionNegotiation: { mode, probe: { timeoutMs: limit } } }
  );
  client.setRequestHandler('sampling/createMessage', on.sampling);
  client.setRequestHandler('elicitation/create', on.elicitation);
  client.setRequestHandler('roots/list', on.roots);
  client.setNotificationHandler('notifications/message', (n) => on.log(n.params));
  client.setNotificationHandler('notifications/resources/updated', (n) => on.updated(n.params));
  const transport = target.url
    ? new StreamableHTTPClientTransport(new URL(target.url))
    : new StdioClientTransport({ ...target, stderr: 'inherit' });
  await client.connect(transport, { timeout: limit });
  const options = { timeout: limit };
  const modern = client.getProtocolEra() === 'modern';
  const peer = {
    version: client.getNegotiatedProtocolVersion(),
    close: () => client.close(),
    page: (kind, params) => client.request({ method: methods[kind], params }, options),
    learnTools: () => client.listTools(undefined, options),
    call: (params, more) => client.callTool(params, { ...options, ...more }),
    read: (uri) => client.readResource({ uri }, { ...options, cacheMode: 'bypass' }),
    prompt: (name, args) => client.getPrompt({ name, arguments: args }, options),
    complete: (params) => client.complete(params, options),
    async subscribe(uri) {
      if (!modern) {
        await client.subscribeResource({ uri }, options);
        return () => client.unsubscribeResource({ uri }, options);
      }
      const subscription = await client.listen({ resourceSubscriptions: [uri] }, options);
      return () => subscription.close();
    }
  };
  if (!modern) peer.setLevel = (level) => client.setLoggingLevel(level, options);
  return peer;
}

await main(open);
