package clients

import "strconv"

// The names that clients and model APIs accept. Anthropic's API accepts 128 characters, OpenAI's 64. Clients put the
// server's name, which is "ctxgate" by what ctxgate init writes, before a tool's name.
const (
	unknownToolName = 64 - len("mcp__ctxgate__")
)

// table is what is known of the clients, as of November 2026. Sources: (m) measured with the client itself,
// (s) read in its source, (d) its documentation, (i) an issue of its repository, (t) third party.
var table = []Client{
	{
		ID: "claude-code", Name: "Claude Code",
		InfoNames: []string{"claude-code"}, // (m) 2.1.197
		Limits: Limits{
			ToolName:     128 - len("mcp__ctxgate__"), // (t) longer names are left out
			Description:  2048,                        // (i) anthropics/claude-code#87650, #41141: cut silently
			Instructions: 2000,                        // (m) joined instructions of servers are cut at about 2 KB
			// (d) 25,000 tokens (MAX_MCP_OUTPUT_TOKENS), estimated at four characters each up to half of
			// it; (t) since October 2026 a result over 50,000 characters is written to a file, which
			// agents without file tools cannot read; (i) anthropics/claude-code#47631. structuredContent
			// is sent as text (m).
			Result:       Result{Chars: 50_000},
			RaisesResult: true, // (d) up to 500,000 characters
		},
	},
	{
		ID: "claude-desktop", Name: "Claude Desktop",
		InfoNames: []string{"claude-ai"}, // (t) apify/mcp-client-capabilities
		Limits: Limits{
			ToolName: 64 - len("ctxgate__"), // (i) sparfenyuk/mcp-proxy#45: 64 characters
		},
	},
	{
		ID: "cursor", Name: "Cursor",
		InfoNames: []string{"cursor-vscode", "cursor*"}, // (t) apify/mcp-client-capabilities
		Limits: Limits{
			ToolName: 60 - len("ctxgate:"), // (i) ComposioHQ/composio#2788: 60 for server and tool, longer ones are dropped
		},
	},
	{
		ID: "vscode", Name: "Visual Studio Code",
		InfoNames: []string{"Visual Studio Code*"}, // (s) mcpServerRequestHandler.ts: the product's name
		Limits: Limits{
			ToolName: 64 - len("mcp_ctxgate_"), // (i) microsoft/vscode#243602
		},
	},
	{
		ID: "cline", Name: "Cline",
		InfoNames: []string{"@cline/core", "Cline"}, // (m) 3.0.65; (s) McpHub.ts
		Limits: Limits{
			ToolName: 64 - len("ctxgate__"), // (s) name-transform.ts: longer ones are replaced by a hash
			// (s) @cline/core 0.0.86, the message builder: 8,000 characters of the result's JSON
			// (CLINE_MESSAGE_BUILDER_MAX_TOOL_RESULT_CHARS); (m) the middle is dropped for good.
			Result: Result{Chars: 8000, AsJSON: true},
		},
	},
	{
		ID: "continue", Name: "Continue",
		InfoNames: []string{"continue-client", "continue-cli-client"}, // (s) MCPConnection.ts
		Limits: Limits{
			ToolName: 64, // (m) sends names as they are: the model API refuses longer ones, on every turn
		},
	},
	{
		ID: "windsurf", Name: "Windsurf",
		InfoNames: []string{"windsurf-client", "Windsurf"}, // (t) apify/mcp-client-capabilities
		Limits: Limits{
			ToolName: unknownToolName, // no figure found; what model APIs refuse
		},
	},
	{
		ID: "codex", Name: "Codex",
		InfoNames: []string{"codex-mcp-client"}, // (m) 0.166
		Limits: Limits{
			// (s) codex-mcp/src/tools.rs: 128 with mcp__ctxgate__; the API refuses a function of more than
			// 64 inside a namespace.
			ToolName: 64,
			// (s) protocol/src/openai_models.rs, utils/output-truncation: 10,000 bytes for models that its
			// catalog does not know, 10,000 tokens (at four bytes each) for those that it knows, both with
			// a fifth added for headers; the middle is dropped for good. The model is not known here, so
			// the smaller one counts; with a known model max_result_bytes = 40000 is safe. (i)
			// openai/codex#5913, #6544, #14466: 10 KiB or 256 lines in versions of 2025. (s)
			// protocol/src/models.rs: structuredContent in place of content, as JSON.
			Result: Result{Bytes: 10_000, AsJSON: true, StructuredInstead: true},
		},
	},
	{
		ID: "gemini", Name: "Gemini CLI",
		InfoNames: []string{"gemini-cli-mcp-client*"}, // (m) 0.61
		Limits: Limits{
			ToolName: 63 - len("mcp_ctxgate_"), // (s) mcp-tool.ts: of longer ones the middle is dropped
			Result:   Result{Chars: 40_000},    // (s) config.ts: DEFAULT_TRUNCATE_TOOL_OUTPUT_THRESHOLD; the rest goes to a file
		},
	},
	{
		ID: "opencode", Name: "opencode",
		InfoNames: []string{"opencode"}, // (m) 1.18
		Limits: Limits{
			ToolName: 64 - len("ctxgate_"),                 // (m) adds the server's name
			Result:   Result{Bytes: 50 << 10, Lines: 2000}, // (s) tool/truncate.ts; the rest goes to a file
		},
	},
	{
		ID: "qwen", Name: "Qwen Code",
		InfoNames: []string{"qwen-cli-mcp-client*", "qwen-code-mcp-client*"}, // (m) 0.15.10
		Limits: Limits{
			ToolName: 63 - len("mcp__ctxgate__"),         // (s) as Gemini CLI
			Result:   Result{Chars: 25_000, Lines: 1000}, // (s) config.ts; (i) QwenLM/qwen-code#2439: MCP results too
		},
	},
	{
		ID: "zed", Name: "Zed",
		InfoNames: []string{"Zed"}, // (s) context_server.rs
		Limits: Limits{
			ToolName: 64 - len("ctxgate_"), // (s) agent/src/thread.rs: 64, with the server's name where two are equal
		},
	},
	{
		ID: "copilot", Name: "Copilot CLI",
		InfoNames: []string{"copilot-cli", "github-copilot-developer"}, // (m) 1.0.102; (t)
		Limits: Limits{
			ToolName: 64 - len("ctxgate-"),    // what model APIs refuse
			Result:   Result{Bytes: 10 << 10}, // (i) github/copilot-cli#1732: the middle is dropped before it could be saved
		},
	},
	{
		ID: "goose", Name: "Goose",
		InfoNames: []string{"goose*"}, // (s) extension_manager.rs: goose-cli, goose-desktop
		Limits: Limits{
			ToolName: 64 - len("ctxgate__"),  // what model APIs refuse
			Result:   Result{Chars: 200_000}, // (s) large_response_handler.rs; the rest goes to a file
		},
	},
	{
		ID: "inspector", Name: "MCP Inspector",
		InfoNames: []string{"inspector-client", "mcp-inspector*"}, // (s) its client; it shows everything
	},
}

// tooSmallError is the problem of a limit that leaves no room.
type tooSmallError struct {
	key   string
	least int
}

func (e tooSmallError) Error() string {
	return e.key + ": must be 0 (no limit) or at least " + strconv.Itoa(e.least)
}
