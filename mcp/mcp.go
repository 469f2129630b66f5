// Package mcp defines the Model Context Protocol in its revisions: versions, methods, _meta keys,
// headers, error codes and the shapes of params and results. It has no I/O and no state.
//
// The revisions form two protocols. In the legacy protocol (up to 2025-11-25) a session begins with
// initialize, and a server may send requests to its client at any time. In the modern protocol (since
// 2026-07-28) each request is self-contained, and a server that needs input answers with
// input_required. Inside the gateway a request is independent of both: the protocol's keys are removed
// where it arrives and added where it leaves.
//
// Path through the files: mcp.go has the constants, params.go parses and edits a request's params,
// result.go parses results, translates them between the protocols and finds links and binary data in
// them, header.go encodes the HTTP headers of 2026-07-28.
package mcp

import "slices"

// The revisions of the protocol, newest first.
const (
	V20260728 = "2026-07-28"
	V20251125 = "2025-11-25"
	V20250618 = "2025-06-18"
	V20250326 = "2025-03-26"
	V20241105 = "2024-11-05"
)

// Versions are the supported revisions, newest first.
var Versions = []string{V20260728, V20251125, V20250618, V20250326, V20241105}

// LegacyVersions are the revisions of the legacy protocol.
var LegacyVersions = Versions[1:]

// Protocol is one of the two protocols that the revisions form.
type Protocol uint8

// The protocols.
const (
	Legacy Protocol = iota + 1 // sessions that begin with initialize
	Modern                     // self-contained requests
)

func (p Protocol) String() string {
	switch p {
	case Legacy:
		return "legacy"
	case Modern:
		return "modern"
	}
	return "unknown"
}

// ProtocolOf is the protocol of a revision; 0 for an unsupported one.
func ProtocolOf(version string) Protocol {
	switch {
	case version == V20260728:
		return Modern
	case slices.Contains(LegacyVersions, version):
		return Legacy
	}
	return 0
}

// Negotiate chooses the revision that answers an initialize: the requested one if it is a supported
// legacy revision, else the newest legacy revision.
func Negotiate(requested string) string {
	if slices.Contains(LegacyVersions, requested) {
		return requested
	}
	return V20251125
}

// The methods.
const (
	Initialize                      = "initialize"
	ServerDiscover                  = "server/discover"
	Ping                            = "ping"
	ToolsList                       = "tools/list"
	ToolsCall                       = "tools/call"
	ResourcesList                   = "resources/list"
	ResourcesRead                   = "resources/read"
	ResourceTemplatesList           = "resources/templates/list"
	ResourcesSubscribe              = "resources/subscribe"
	ResourcesUnsubscribe            = "resources/unsubscribe"
	PromptsList                     = "prompts/list"
	PromptsGet                      = "prompts/get"
	CompletionComplete              = "completion/complete"
	LoggingSetLevel                 = "logging/setLevel"
	SubscriptionsListen             = "subscriptions/listen"
	RootsList                       = "roots/list"
	SamplingCreateMessage           = "sampling/createMessage"
	ElicitationCreate               = "elicitation/create"
	NotifyInitialized               = "notifications/initialized"
	NotifyCancelled                 = "notifications/cancelled"
	NotifyProgress                  = "notifications/progress"
	NotifyMessage                   = "notifications/message"
	NotifyToolsChanged              = "notifications/tools/list_changed"
	NotifyPromptsChanged            = "notifications/prompts/list_changed"
	NotifyResourcesChanged          = "notifications/resources/list_changed"
	NotifyResourceUpdated           = "notifications/resources/updated"
	NotifyRootsChanged              = "notifications/roots/list_changed"
	NotifySubscriptionsAcknowledged = "notifications/subscriptions/acknowledged"
	NotifyElicitationComplete       = "notifications/elicitation/complete"
)

// The keys of _meta that the protocol defines, and ours.
const (
	MetaProgressToken      = "progressToken"
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaToolUseID          = "claudecode/toolUseId" // Claude Code's id of the tool call, as the model sees it
	MetaServer             = "ctxgate/server"       // the server that a request or notification came from (A5, A7)
)

// The error codes that the protocol defines.
const (
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602

	CodeURLElicitationRequired = -32042 // of 2025-11-25: the user has to open an address first
	CodeResourceNotFound       = -32002 // until 2025-11-25; since then CodeInvalidParams
	CodeHeaderMismatch         = -32020
	CodeMissingCapability      = -32021
	CodeUnsupportedVersion     = -32022
)

// The headers.
const (
	HeaderVersion   = "Mcp-Protocol-Version"
	HeaderSession   = "Mcp-Session-Id"
	HeaderMethod    = "Mcp-Method"
	HeaderName      = "Mcp-Name"
	HeaderLastEvent = "Last-Event-ID"
)

// LogLevels are the log levels, least severe first.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LogSeverity is a level's rank; -1 for an unknown level.
func LogSeverity(level string) int { return slices.Index(LogLevels, level) }

// IsServerToClient reports whether servers send this request to clients.
func IsServerToClient(method string) bool {
	return method == RootsList || method == SamplingCreateMessage || method == ElicitationCreate
}

// IsHousekeeping reports whether the gateway itself sends this request to servers.
func IsHousekeeping(method string) bool {
	switch method {
	case Initialize, ServerDiscover, Ping, ToolsList, PromptsList, ResourcesList, ResourceTemplatesList, SubscriptionsListen, LoggingSetLevel, ResourcesSubscribe, ResourcesUnsubscribe:
		return true
	}
	return false
}

// CanRequireInput reports whether a server may answer this method with input_required.
func CanRequireInput(method string) bool {
	return method == ToolsCall || method == ResourcesRead || method == PromptsGet
}

// NameParam is the param that the header Mcp-Name mirrors; "" if a method has none.
func NameParam(method string) string {
	switch method {
	case ToolsCall, PromptsGet:
		return "name"
	case ResourcesRead:
		return "uri"
	}
	return ""
}
