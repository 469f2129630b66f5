package readback_test

import (
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/gemini"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

var mergeCases = []mergeCase{
	{
		name: "call and end in one chunk, no index, signed", shape: openaichat.Codec{}, stream: true,
		first: `data: {"id":"1","created":1,"model":"a","choices":[{"delta":{"role":"assistant","content":"Hm. ","tool_calls":[{"id":"r","type":"function","extra_content":{"google":{"thought_signature":"s"}},"function":{"name":"recover_text","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls","index":0}],"usage":{"total_tokens":3}}

data: [DONE]

`,
		second: `data: {"id":"2","created":2,"model":"b","choices":[{"delta":{"role":"assistant","content":"So."},"finish_reason":"stop","index":0}],"usage":{"total_tokens":4}}

data: [DONE]

`,
		said: `{"role":"assistant","content":"Hm. ","tool_calls":[{"id":"r","type":"function","extra_content":{"google":{"thought_signature":"s"}},"function":{"name":"recover_text","arguments":"{\"a\":1}"}}]}`,
		out: `data: {"id":"1","created":1,"model":"a","choices":[{"delta":{"role":"assistant","content":"Hm. "},"finish_reason":null,"index":0}],"usage":null}

data: {"id":"1","created":1,"model":"a","choices":[{"delta":{"content":"So."},"finish_reason":"stop","index":0}],"usage":{"total_tokens":7}}

data: [DONE]

`,
	},
	{
		name: "all calls have index 0, usage in every chunk, reasoning_details", shape: openaichat.Codec{}, stream: true,
		first: `: comment

data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"I ","reasoning_details":[{"t":"I"}]}}],"usage":{"n":1}}

data: {"id":"1","choices":[{"index":0,"delta":{"content":null,"reasoning":"see","reasoning_details":[{"t":"see"}]}}],"usage":{"n":2}}

data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{}"}}]}}]}

data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"r","function":{"name":"recover\u005ftext","arguments":"{"}}]}}]}

data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,"id":"b","function":{"name":"look","arguments":""}}]}}]}

data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]}}]}

data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"n":3}}

`,
		said: `{"role":"assistant","content":null,"reasoning":"I see","reasoning_details":[{"t":"I"},{"t":"see"}],"tool_calls":[{"id":"a","function":{"name":"look","arguments":"{}"},"type":"function"},{"id":"r","function":{"name":"recover\u005ftext","arguments":"{}"},"type":"function"},{"id":"b","function":{"name":"look","arguments":"{}"},"type":"function"}]}`,
		out: `: comment

data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"I ","reasoning_details":[{"t":"I"}]}}],"usage":{"n":1}}

data: {"id":"1","choices":[{"index":0,"delta":{"content":null,"reasoning":"see","reasoning_details":[{"t":"see"}]}}],"usage":{"n":2}}

data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{}"}}]}}]}

data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"look","arguments":""}}]}}]}

data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]}}]}

data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"n":3}}

`,
	},
	{
		name: "data in two lines, call without an id", shape: openaichat.Codec{}, stream: true,
		first: "id: 7\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\",\ndata: \"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"recover_text\",\"arguments\":\"\"}}]}}]}\n\ndata: [DONE]\n\n",
		out:   "id: 7\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n",
	},
	{
		name: "empty id at first, no empty line at the end", shape: openaichat.Codec{}, stream: true,
		first:  "data:{\"id\":\"\",\"choices\":[]}\n\ndata:{\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"r\",\"function\":{\"name\":\"recover_text\",\"arguments\":\"{}\"}}]}}]}\n\n: waiting\n\ndata: [DONE]",
		second: "data:{\"id\":\"2\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"So.\"},\"finish_reason\":\"stop\"}]}\n",
		said:   `{"role":"assistant","content":null,"tool_calls":[{"id":"r","function":{"name":"recover_text","arguments":"{}"},"type":"function"}]}`,
		out:    "data:{\"id\":\"\",\"choices\":[]}\n\n: waiting\n\ndata:{\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"So.\"},\"finish_reason\":\"stop\"}]}\n",
	},
	{
		name: "not streamed, with members that a request must not repeat", shape: openaichat.Codec{},
		first:  `{"id":"1","created":1,"choices":[{"index":0,"message":{"role":"assistant","content":"Hm. ","reasoning_content":"I think. ","refusal":null,"annotations":[],"tool_calls":[{"id":"r","type":"function","function":{"name":"recover_text","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"total_tokens":3,"cost":0.25,"d":{"cached":null}}}`,
		second: `{"id":"2","created":2,"choices":[{"index":0,"message":{"role":"assistant","content":"So.","reasoning_content":"I know.","refusal":null,"annotations":[]},"finish_reason":"stop"}],"usage":{"total_tokens":4,"cost":0.5,"d":{"cached":2},"new":1}}`,
		said:   `{"role":"assistant","content":"Hm. ","reasoning_content":"I think. ","tool_calls":[{"id":"r","type":"function","function":{"name":"recover_text","arguments":"{}"}}]}`,
		out:    `{"id":"1","created":1,"choices":[{"index":0,"message":{"role":"assistant","content":"Hm. So.","reasoning_content":"I think. I know.","refusal":null,"annotations":[]},"finish_reason":"stop"}],"usage":{"total_tokens":7,"cost":0.75,"d":{"cached":2},"new":1}}`,
	},
	{
		name: "second reply is not a completion", shape: openaichat.Codec{},
		first:  `{"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"id":"r","function":{"name":"recover_text"}}]}}]}`,
		second: `<html>`,
		said:   `{"role":"assistant","content":null,"tool_calls":[{"id":"r","function":{"name":"recover_text"}}]}`,
		out:    `<html>`,
	},
	{
		name: "citations, blank text, redacted thinking, invalid JSON", shape: anthropic.Codec{}, stream: true,
		first: `data: {"type":"message_start","message":{"id":"m1","usage":{"input_tokens":5,"output_tokens":1}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"d"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" \n"}}

data: {"type":"content_block_stop","index":1}

data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":"A","citations":[]}}

data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"r","name":"recover_text","input":{}}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"c":1}}}

data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"B"}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"c":2}}}

data: {"type":"content_block_stop","index":3}

data: {"type":"content_block_stop","index":2}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":7}}

data: {"type":"message_stop"}

`,
		second: `data: {"type":"message_start","message":{"id":"m2","usage":{"input_tokens":6,"cache_read_input_tokens":9,"output_tokens":1}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"C"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":8}}

data: {"type":"message_stop"}

`,
		said: `[{"type":"redacted_thinking","data":"d"},{"type":"text","text":"AB","citations":[{"c":1},{"c":2}]},{"type":"tool_use","id":"r","name":"recover_text","input":{"INVALID_JSON":"{\"a\":"}}]`,
		out: `data: {"type":"message_start","message":{"id":"m1","usage":{"input_tokens":5,"output_tokens":1}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"d"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" \n"}}

data: {"type":"content_block_stop","index":1}

data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":"A","citations":[]}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"c":1}}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"B"}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"c":2}}}

data: {"type":"content_block_stop","index":2}

data: {"type":"content_block_start","index":3,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"C"}}

data: {"type":"content_block_stop","index":3}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15,"input_tokens":11,"cache_read_input_tokens":9}}

data: {"type":"message_stop"}

`,
	},
	{
		name: "white space", shape: anthropic.Codec{},
		first:  "\n {\"id\":\"1\", \"content\" : [ {\"type\":\"tool_use\",\"id\":\"r\",\"name\":\"recover_text\",\"input\":{}} ] , \"stop_reason\": \"tool_use\" } \n",
		second: "\n {\"id\":\"2\", \"content\" : [ {\"type\":\"text\",\"text\":\"So.\"} ] , \"stop_reason\": \"end_turn\" } \n",
		said:   `[{"type":"tool_use","id":"r","name":"recover_text","input":{}}]`,
		out:    `{"id":"1", "content" : [{"type":"text","text":"So."}] , "stop_reason": "end_turn" }`,
	},
	{
		name: "white space before the data of an event, one round", shape: anthropic.Codec{}, stream: true,
		first: "data:  {\"type\":\"content_block_start\",\"index\":0,\"content_block\": {\"type\":\"tool_use\",\"id\":\"r\",\"name\":\"recover_text\"}}\n\n" +
			"data:  {\"type\":\"message_delta\", \"delta\": {\"stop_reason\": \"tool_use\"}}\n\n",
		second: "data:  {\"type\":\"content_block_start\",\"index\":0,\"content_block\": {\"type\":\"tool_use\",\"id\":\"q\",\"name\":\"recover_text\"}}\n\n" +
			"data:  {\"type\":\"message_delta\", \"delta\": {\"stop_reason\": \"tool_use\"}}\n\n",
		said: `[{"type":"tool_use","id":"r","name":"recover_text"}]`,
		out:  "data: {\"type\":\"message_delta\", \"delta\": {\"stop_reason\": \"end_turn\"}}\n\n",
	},
	{
		name: "reasoning that is not stored, custom tool call", shape: responses.Codec{},
		first: `{"id":"1","status":"completed","store":false,"output":[{"type":"reasoning","id":"rs1","summary":[]},{"type":"reasoning","id":"rs2","encrypted_content":"e"},{"type":"function_call","call_id":"r","name":"recover_text","arguments":""},{"type":"custom_tool_call","call_id":"a","name":"recover_text","input":"x"},{"type":"shell_call","call_id":"s"},{"type":"shell_call_output","call_id":"s"}],"usage":{"total_tokens":3}}`,
		said:  `[{"type":"reasoning","id":"rs2","encrypted_content":"e"},{"type":"function_call","call_id":"r","name":"recover_text","arguments":""},{"type":"custom_tool_call","call_id":"a","name":"recover_text","input":"x"},{"type":"shell_call","call_id":"s"},{"type":"shell_call_output","call_id":"s"}]`,
		out:   `{"id":"1","status":"completed","store":false,"output":[{"type":"reasoning","id":"rs1","summary":[]},{"type":"reasoning","id":"rs2","encrypted_content":"e"},{"type":"custom_tool_call","call_id":"a","name":"recover_text","input":"x"},{"type":"shell_call","call_id":"s"},{"type":"shell_call_output","call_id":"s"}],"usage":{"total_tokens":3}}`,
	},
	{
		name: "last event without output, second round fails", shape: responses.Codec{}, stream: true,
		first: `data: {"type":"response.created","sequence_number":0,"response":{"id":"1"}}

data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"type":"function_call","call_id":"r","name":"recover_text","arguments":""}}

data: {"type":"response.output_item.done","sequence_number":2,"output_index":0,"item":{"type":"function_call","call_id":"r","name":"recover_text","arguments":"{}"}}

data: {"type":"response.completed","sequence_number":3,"response":{"id":"1","status":"completed","output":[]}}

`,
		second: `data: {"type":"response.created","sequence_number":0,"response":{"id":"2"}}

data: {"type":"response.new_thing","sequence_number":1}

data: {"type":"response.failed","sequence_number":2,"response":{"id":"2","status":"failed","output":[]}}

`,
		said: `[{"type":"function_call","call_id":"r","name":"recover_text","arguments":"{}"}]`,
		out: `data: {"type":"response.created","sequence_number":0,"response":{"id":"1"}}

data: {"type":"response.new_thing","sequence_number":1}

data: {"type":"response.failed","sequence_number":2,"response":{"id":"2","status":"failed","output":[]}}

`,
	},
	{
		name: "call and end in one event, texts in pieces, signed", shape: gemini.Codec{}, stream: true,
		first: "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"I th\",\"thought\": true}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 9},\"responseId\": \"a\"}\n\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"ink\",\"thought\": true}],\"role\": \"model\"},\"index\": 0}]}\n\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"H\"}],\"role\": \"model\"}}],\"responseId\": \"a\"}\n\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"m. \"},{\"functionCall\": {\"name\": \"recover_text\",\"args\": {\"a\": 1}},\"thoughtSignature\": \"s\"}],\"role\": \"model\"},\"finishReason\": \"STOP\"}],\"usageMetadata\": {\"promptTokenCount\": 9,\"candidatesTokenCount\": 2},\"responseId\": \"a\"}\n\n",
		second: "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"So.\"}],\"role\": \"model\"}}],\"usageMetadata\": {\"promptTokenCount\": 20},\"responseId\": \"b\"}\n\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"\",\"thoughtSignature\": \"t\"}],\"role\": \"model\"},\"finishReason\": \"STOP\"}],\"usageMetadata\": {\"promptTokenCount\": 20,\"candidatesTokenCount\": 3},\"responseId\": \"b\"}\n\n",
		said: `[{"text":"I think","thought":true},{"text":"Hm. "},{"functionCall": {"name": "recover_text","args": {"a": 1}},"thoughtSignature": "s"}]`,
		out: "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"I th\",\"thought\": true}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 9},\"responseId\": \"a\"}\n\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"ink\",\"thought\": true}],\"role\": \"model\"},\"index\": 0}]}\n\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"H\"}],\"role\": \"model\"}}],\"responseId\": \"a\"}\n\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"m. \"}],\"role\": \"model\"}}],\"usageMetadata\": {\"promptTokenCount\": 9,\"candidatesTokenCount\": 2},\"responseId\": \"a\"}\n\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"So.\"}],\"role\": \"model\"}}],\"usageMetadata\": {\"promptTokenCount\": 29,\"candidatesTokenCount\":2},\"responseId\": \"a\"}\n\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"\",\"thoughtSignature\": \"t\"}],\"role\": \"model\"},\"finishReason\": \"STOP\"}],\"usageMetadata\": {\"promptTokenCount\": 29,\"candidatesTokenCount\":5},\"responseId\": \"a\"}\n\n",
	},
	{
		name: "beside a call of the client", shape: gemini.Codec{}, stream: true,
		first: "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"recover_text\",\"id\":\"r\"}},{\"functionCall\":{\"name\":\"look\",\"args\":{}}}],\"role\":\"model\"}}]}\n\n" +
			"data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":9}}\n\n",
		said: `[{"functionCall":{"name":"recover_text","id":"r"}},{"functionCall":{"name":"look","args":{}}}]`,
		out: "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"look\",\"args\":{}}}],\"role\":\"model\"}}]}\n\n" +
			"data: {\"candidates\":[{\"finishReason\":\"STOP\",\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"\"}]}}],\"usageMetadata\":{\"promptTokenCount\":9}}\n\n",
	},
	{
		name: "a malformed call is not answered", shape: gemini.Codec{}, stream: true,
		first: "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"recover_text\"}}],\"role\":\"model\"},\"finishReason\":\"MAX_TOKENS\"}]}\n\n",
		out:   "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}],\"role\":\"model\"},\"finishReason\":\"MAX_TOKENS\"}]}\n\n",
	},
	{
		name: "not streamed", shape: gemini.Codec{},
		first:  `{"candidates":[{"content":{"parts":[{"text":"Hm. "},{"functionCall":{"name":"recover_text","args":{}}},{"functionCall":{"name":"recover_text","args":{"b":2}}}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"promptTokensDetails":[{"modality":"TEXT","tokenCount":9}]},"modelVersion":"m","responseId":"a"}`,
		second: `{"candidates":[{"content":{"parts":[{"text":"So."}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":20,"promptTokensDetails":[{"modality":"TEXT","tokenCount":20}]},"modelVersion":"m","responseId":"b"}`,
		said:   `[{"text":"Hm. "},{"functionCall":{"name":"recover_text","args":{}}},{"functionCall":{"name":"recover_text","args":{"b":2}}}]`,
		out:    `{"candidates":[{"content":{"parts":[{"text":"Hm. "},{"text":"So."}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":29,"promptTokensDetails":[{"modality":"TEXT","tokenCount":9},{"modality":"TEXT","tokenCount":20}]},"modelVersion":"m","responseId":"a"}`,
	},
}
