// Package mcp is what the revisions of the Model Context Protocol say: their names, methods,
// metadata keys, headers, codes and the shapes of their results. It has no I/O and no state;
// doors and servers use it to speak either era.
//
// There are two eras. In the older one a session begins with initialize, and a server may ask
// its client things whenever it likes. Since 2026-07-28 each request says everything about
// itself, and a server that needs something answers with what it needs. Inside the gateway a
// request is in neither dress: the era's keys are taken off at one edge and put on at the other.
//
// Path through the files: mcp.go has the words, params.go reads and dresses a request's params,
// result.go does the same for results, content.go finds links and binary data in a result,
// header.go and param.go are the HTTP headers of 2026-07-28.
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

// Versions are the revisions spoken here, newest first.
var Versions = []string{V20260728, V20251125, V20250618, V20250326, V20241105}

// Legacy are the revisions that begin with initialize.
var Legacy = Versions[1:]

// Era is which of the two protocols a peer speaks.
type Era uint8

// The eras.
const (
	EraLegacy Era = iota + 1 // a session, begun by initialize
	EraModern                // every request for itself
)

func (e Era) String() string {
	switch e {
	case EraLegacy:
		return "legacy"
	case EraModern:
		return "modern"
	}
	return "unknown"
}

// EraOf is the era of a revision; 0 for one that is not spoken here.
func EraOf(version string) Era {
	switch {
	case version == V20260728:
		return EraModern
	case slices.Contains(Legacy, version):
		return EraLegacy
	}
	return 0
}

// Negotiate answers an initialize that asks for a revision: that one if it is spoken here, else
// the newest that begins with initialize.
func Negotiate(asked string) string {
	if slices.Contains(Legacy, asked) {
		return asked
	}
	return V20251125
}

// The methods.
const (
	Initialize       = "initialize"
	Discover         = "server/discover"
	Ping             = "ping"
	ToolsList        = "tools/list"
	ToolsCall        = "tools/call"
	ResourcesList    = "resources/list"
	ResourcesRead    = "resources/read"
	TemplatesList    = "resources/templates/list"
	Subscribe        = "resources/subscribe"
	Unsubscribe      = "resources/unsubscribe"
	PromptsList      = "prompts/list"
	PromptsGet       = "prompts/get"
	Complete         = "completion/complete"
	SetLevel         = "logging/setLevel"
	Listen           = "subscriptions/listen"
	RootsList        = "roots/list"
	Sampling         = "sampling/createMessage"
	Elicit           = "elicitation/create"
	Initialized      = "notifications/initialized"
	Cancelled        = "notifications/cancelled"
	Progress         = "notifications/progress"
	LogMessage       = "notifications/message"
	ToolsChanged     = "notifications/tools/list_changed"
	PromptsChanged   = "notifications/prompts/list_changed"
	ResourcesChanged = "notifications/resources/list_changed"
	ResourceUpdated  = "notifications/resources/updated"
	RootsChanged     = "notifications/roots/list_changed"
	Acknowledged     = "notifications/subscriptions/acknowledged"
	ElicitationEnded = "notifications/elicitation/complete"
)

// The keys of _meta that the protocol defines, and ours.
const (
	KeyProgress     = "progressToken"
	KeyVersion      = "io.modelcontextprotocol/protocolVersion"
	KeyClientInfo   = "io.modelcontextprotocol/clientInfo"
	KeyCapabilities = "io.modelcontextprotocol/clientCapabilities"
	KeyLogLevel     = "io.modelcontextprotocol/logLevel"
	KeySubscription = "io.modelcontextprotocol/subscriptionId"
	KeyServerInfo   = "io.modelcontextprotocol/serverInfo"
	KeyServer       = "ctxgate/server" // which server a request or notification came from (A5, A7)
)

// The error codes that the protocol gives a meaning.
const (
	CodeMethodNotFound    = -32601
	CodeInvalidParams     = -32602
	CodeResourceNotFound  = -32002 // until 2025-11-25; since then CodeInvalidParams
	CodeHeaderMismatch    = -32020
	CodeMissingCapability = -32021
	CodeBadVersion        = -32022
)

// The headers.
const (
	HeaderVersion   = "Mcp-Protocol-Version"
	HeaderSession   = "Mcp-Session-Id"
	HeaderMethod    = "Mcp-Method"
	HeaderName      = "Mcp-Name"
	HeaderLastEvent = "Last-Event-ID"
)

// Levels are the levels of logging, least severe first.
var Levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Severity is a level's rank; -1 for what is no level.
func Severity(level string) int { return slices.Index(Levels, level) }

// Asks says whether a method is one that a server asks of its client.
func Asks(method string) bool {
	return method == RootsList || method == Sampling || method == Elicit
}

// IsHousekeeping says whether a method is one that the gateway asks for itself.
func IsHousekeeping(method string) bool {
	switch method {
	case Initialize, Discover, Ping, ToolsList, PromptsList, ResourcesList, TemplatesList, Listen, SetLevel, Subscribe, Unsubscribe:
		return true
	}
	return false
}

// Interruptible says whether a server may answer a method by asking for input first.
func Interruptible(method string) bool {
	return method == ToolsCall || method == ResourcesRead || method == PromptsGet
}

// IdentityOf names the field that says what a method is about, and that Mcp-Name mirrors.
func IdentityOf(method string) string {
	switch method {
	case ToolsCall, PromptsGet:
		return "name"
	case ResourcesRead:
		return "uri"
	}
	return ""
}
