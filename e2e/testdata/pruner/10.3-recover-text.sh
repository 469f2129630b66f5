curl -sS \
  -H 'Content-Type: application/json' \
  -d '{
    "jsonrpc":"2.0",
    "id":3,
    "method":"tools/call",
    "params":{
      "name":"recover_text",
      "arguments":{
        "prune_id":"prn_...",
        "ranges":[{"start_line":1,"end_line":50}],
        "include_line_numbers":true
      }
    }
  }' \
  http://127.0.0.1:8006/rpc | jq -r '.result.content[0].text' | jq
