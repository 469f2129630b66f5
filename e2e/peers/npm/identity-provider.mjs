// A real identity provider on loopback, for tests: oidc-provider.
//
//   node identity-provider.mjs PORT KEY-ID
//
// The client "agent" gets tokens for itself (client credentials): a JWT for the resource urn:ctxgate or any http(s) URL,
// an opaque token for urn:opaque. The client "gateway" may ask about opaque ones. The client "browser" uses the
// authorization code flow with PKCE; anybody may log in. Each start has a new key, under the id it is given.
import { Provider } from 'oidc-provider'
import { generateKeyPairSync } from 'node:crypto'

const [port, keyID] = process.argv.slice(2)
const issuer = `http://127.0.0.1:${port}`
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })

const provider = new Provider(issuer, {
  jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), kid: keyID, use: 'sig', alg: 'RS256' }] },
  clients: [
    { client_id: 'agent', client_secret: 'agent-secret', grant_types: ['client_credentials'], redirect_uris: [], response_types: [] },
    { client_id: 'gateway', client_secret: 'gateway-secret', grant_types: [], redirect_uris: [], response_types: [] },
  ],
  cookies: { keys: ['for tests only'] },
  pkce: { required: () => true },
  scopes: ['openid', 'offline_access', 'mcp'],
  features: {
    clientCredentials: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    registration: { enabled: true },
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => 'urn:ctxgate',
      useGrantedResource: () => true,
      getResourceServerInfo: (_ctx, resource) => ({
        scope: 'mcp',
        audience: resource === 'urn:opaque' ? 'urn:ctxgate' : resource,
        accessTokenFormat: resource === 'urn:opaque' ? 'opaque' : 'jwt',
        accessTokenTTL: 600,
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  extraTokenClaims: () => ({ org: 'acme', groups: ['dev', 'ops'] }),
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
})
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'))
