curl -sS http://localhost:8006/health | jq
curl -sS -H 'Content-Type: application/json' \
  -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"diag","version":"1.0.0"}}}' \
  http://localhost:8006/rpc | jq
