// Package clients knows the MCP clients that people use: their ids, what they call themselves, and what each cuts or
// refuses by itself. It holds facts, no behaviour: table.go is the table, with the source of every figure; clients.go
// finds a client in it and applies what a configuration says otherwise.
package clients

import (
	"slices"
	"strings"
)

// Client is one MCP client.
type Client struct {
	ID        string   // as in ctxgate stdio --client and ?client=
	Name      string   // as people call it
	InfoNames []string // what it sends as clientInfo.name; a * at the end stands for any characters
	Limits
}

// Limits are what a client would otherwise cut or refuse. Zero means no limit.
type Limits struct {
	ToolName     int // characters of a tool's name, without what the client puts before it
	Description  int // characters of a tool's description (UTF-16 code units); the rest is dropped silently
	Instructions int // characters of the instructions of a server (UTF-16 code units)
	Result       Result

	// RaisesResult means that _meta["anthropic/maxResultSizeChars"] of a tool raises Result.Chars for it.
	RaisesResult bool
}

// Result is the largest tool result that a client passes to its model as it is. Zero means no limit.
type Result struct {
	Chars int // UTF-16 code units, as JavaScript counts
	Bytes int // UTF-8 bytes
	Lines int

	// AsJSON means that the client counts the result's JSON, with its escapes, and not the texts in it.
	AsJSON bool

	// StructuredInstead means that structuredContent counts in place of content where there is one. Otherwise
	// both count, which is right or too careful: most clients use only one of them.
	StructuredInstead bool
}

// IsZero reports whether there is no limit.
func (r Result) IsZero() bool { return r.Chars == 0 && r.Bytes == 0 && r.Lines == 0 }

// MaxRaisedChars is the most that _meta["anthropic/maxResultSizeChars"] can ask for.
const MaxRaisedChars = 500_000

// IDs lists the ids of all clients in the table.
func IDs() []string {
	ids := make([]string, len(table))
	for i, c := range table {
		ids[i] = c.ID
	}
	return ids
}

// ByID finds a client.
func ByID(id string) (Client, bool) {
	i := slices.IndexFunc(table, func(c Client) bool { return c.ID == id })
	if i < 0 {
		return Client{}, false
	}
	return table[i], true
}

// ByInfoName finds a client by what it sends as clientInfo.name.
func ByInfoName(name string) (Client, bool) {
	if name == "" {
		return Client{}, false
	}
	for _, c := range table {
		for _, known := range c.InfoNames {
			prefix, open := strings.CutSuffix(known, "*")
			if known == name || open && strings.HasPrefix(name, prefix) {
				return c, true
			}
		}
	}
	return Client{}, false
}

// Unknown is a client that the table does not have: only what model APIs refuse is certain.
func Unknown() Limits { return Limits{ToolName: unknownToolName} }

// ToolNameLimits lists the different limits of tool names, the highest first.
func ToolNameLimits() []int {
	limits := []int{unknownToolName}
	for _, c := range table {
		if c.ToolName > 0 && !slices.Contains(limits, c.ToolName) {
			limits = append(limits, c.ToolName)
		}
	}
	slices.Sort(limits)
	slices.Reverse(limits)
	return limits
}

// Override replaces figures of the table for one client.
type Override struct {
	// The most characters of a tool result; 0: no limit. Characters are counted as JavaScript does, where
	// most emoji count two. Default: as the table of known clients has it.
	MaxResultChars *int `key:"max_result_chars" min:"0"`

	// The most bytes of a tool result; 0: no limit. For codex these are bytes of the result's JSON.
	// Default: as the table of known clients has it.
	MaxResultBytes *int `key:"max_result_bytes" min:"0"`

	// The most lines of a tool result; 0: no limit. Default: as the table of known clients has it.
	MaxResultLines *int `key:"max_result_lines" min:"0"`

	// The longest name of a tool, without what the client puts before it; 0: no limit. A longer one is
	// shortened; calls by the long name still work. Default: as the table of known clients has it.
	MaxToolName *int `key:"max_tool_name" min:"0"`

	// The longest description of a tool, in characters; 0: no limit. The end of a longer one is stored,
	// and a marker names how to read it. Default: as the table of known clients has it.
	MaxDescriptionChars *int `key:"max_description_chars" min:"0"`

	// The longest instructions of the gateway, in characters; 0: no limit. Default: as the table of known
	// clients has it.
	MaxInstructionsChars *int `key:"max_instructions_chars" min:"0"`
}

// The smallest limits that leave room for a marker, or for a name that can be told from others.
const (
	MinResult      = 1000
	MinToolName    = 24
	MinDescription = 300
)

// Validate lists every problem; each text begins with the key it is about.
func (o Override) Validate() []error {
	var problems []error
	for _, p := range []struct {
		key   string
		value *int
		least int
	}{
		{"max_result_chars", o.MaxResultChars, MinResult},
		{"max_result_bytes", o.MaxResultBytes, MinResult},
		{"max_result_lines", o.MaxResultLines, 10},
		{"max_tool_name", o.MaxToolName, MinToolName},
		{"max_description_chars", o.MaxDescriptionChars, MinDescription},
		{"max_instructions_chars", o.MaxInstructionsChars, MinDescription},
	} {
		if p.value != nil && *p.value != 0 && *p.value < p.least {
			problems = append(problems, tooSmallError{p.key, p.least})
		}
	}
	return problems
}

// Over returns limits with what the override sets.
func (o Override) Over(l Limits) Limits {
	for _, p := range []struct{ dst, value *int }{
		{&l.Result.Chars, o.MaxResultChars}, {&l.Result.Bytes, o.MaxResultBytes}, {&l.Result.Lines, o.MaxResultLines},
		{&l.ToolName, o.MaxToolName}, {&l.Description, o.MaxDescriptionChars}, {&l.Instructions, o.MaxInstructionsChars},
	} {
		if p.value != nil {
			*p.dst = *p.value
		}
	}
	return l
}
