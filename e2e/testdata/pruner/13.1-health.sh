curl -sS http://127.0.0.1:8006/health | jq
