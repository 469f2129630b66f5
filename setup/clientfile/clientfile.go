// Package clientfile finds, reads and rewrites the config files of MCP clients.
//
// Find (find.go) lists the files that exist, File.Read (read.go) returns the servers that one of them starts, and
// File.Rewire (rewire.go) returns its bytes with some servers replaced by one entry for ctxgate; every other byte
// stays as it was. File.Revert (revert.go) takes such an edit back in a file that was written since. form.go has what
// differs between clients, value.go their syntax for variables, lists.go the lists of tools and servers. The facts come from the clients' sources and from runs of the clients; a
// comment says so where a client does what one would not expect.
//
// The package writes nothing, starts nothing and asks no client: several clients' own list commands start every server.
package clientfile

import (
	"time"

	"github.com/ctxgate/ctxgate/internal/jsonedit"
)

// Env is where clients look for their files. The zero value of Lookup is an empty environment.
type Env struct {
	GOOS   string // as runtime.GOOS
	Home   string
	Cwd    string // for the files of a project; empty = only those of the user
	Lookup func(name string) (string, bool)
	System string // the directory of the system's files; empty = the root
}

// Scope says for whom a file counts.
type Scope string

// A user's file counts everywhere, a project's in one directory tree, and may be shared by its authors.
const (
	User    Scope = "user"
	Project Scope = "project"
)

// File is a config file of a client.
type File struct {
	Client string // id, as in --client
	Path   string
	Scope  Scope
	Exists bool

	// ReadBy are the ids of other clients that read this file, too: an edit counts for all of them.
	ReadBy []string

	env  Env
	root string // the directory that a project's file is for
}

// Transport is how a client speaks with a server.
type Transport string

// The transports that ctxgate knows.
const (
	Stdio Transport = "stdio"
	HTTP  Transport = "http"
	SSE   Transport = "sse"
)

// Var is a name and its value: an environment variable or a header.
type Var struct {
	Name  string
	Value Value
}

// Server is a server as a client's file has it.
type Server struct {
	Name    string
	Project string // the directory that the entry is for, if it is not for the whole scope (Claude Code's local scope)
	Line    int    // of the entry in the file
	Comment string // what the file's author wrote about it

	Transport      Transport
	TransportGuess bool // the client finds out by trying; Transport is what the URL suggests

	Command Value
	Args    []Value
	Env     []Var
	PassEnv []string // variables of the user's environment that the child gets in addition, by name
	EnvFile Value    // a file of variables
	Cwd     Value    // of the child; for a project's file its root, unless the entry says otherwise

	URL     Value
	Headers []Var
	OAuth   bool // the client has logged in to it; through ctxgate the user has to log in again

	// OAuthClient is the client that is registered with the server, if the file names one.
	OAuthClient OAuthClient

	Disabled       bool
	Timeout        time.Duration // of a call; 0 = the client's default
	StartupTimeout time.Duration
	EnabledTools   []string // only these; nil = all
	DisabledTools  []string
	ApprovedTools  []string // called without a question to the user; "*" = all

	// Gateway is true for an entry that starts ctxgate itself.
	Gateway bool
	// Keep says why the entry has to stay in the client's file; empty if it can be moved.
	Keep string
	// Notes are what the user should know when it is moved.
	Notes []string

	path   []string // of its entry in the file
	fields map[string]any
}

// OAuthClient is what an OAuth client is registered as.
type OAuthClient struct {
	ID     Value
	Secret Value
	Scopes []string
}

// Content is what a file says about MCP servers.
type Content struct {
	Servers []Server
}

// Entry is the server that takes the place of those that move.
type Entry struct {
	Name    string
	Command string
	Args    []string
	// Env is set for the child as it is written, in the client's own syntax for variables.
	Env []EnvVar
	// PassEnv are variables of the user's environment that the child needs. Clients that pass on their whole
	// environment need nothing for it.
	PassEnv []string
}

// EnvVar is a variable of an Entry.
type EnvVar struct{ Name, Value string }

// Move names a server that goes, and the name that it has in ctxgate (for lists of tools, which change their names).
type Move struct {
	Server Server
	ID     string // empty = Server.Name
}

// Rewired is the result of Rewire.
type Rewired struct {
	Data []byte
	// Notes are what the user should know or do now, in full sentences.
	Notes []string
}

// separator stands between server and tool in the names that ctxgate lists with profile = "agents".
const separator = "__"

func (m Move) id() string {
	if m.ID != "" {
		return m.ID
	}
	return m.Server.Name
}

// jsonSyntax is what a client's own reader accepts.
var (
	strictJSON   = jsonedit.Strict
	jsonComments = jsonedit.Syntax{Comments: true}
	jsonc        = jsonedit.JSONC
)
