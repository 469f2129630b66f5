// Package pins decides which definitions of tools may be served. A definition is what a model reads about a tool; a
// server that changes it after somebody approved it can make a model do something else with the same name.
//
// Path through the files: canonical.go gives a definition the form that is compared and hashed; guard.go ★ compares
// what a server lists with what was approved, and holds back what differs; record.go is what was approved, lock.go the
// file that holds it for review, kept.go the form in the store. hidden.go finds characters that nobody sees,
// lookalike.go names that look the same. diff.go shows what changed, report.go what there is.
//
// Invariants: the same definition has the same hash whatever the order of its keys and its white space, and any other
// difference gives another hash. A tool whose definition differs from the approved one is not served until somebody
// approves it or it changes back; other tools are not affected. What cannot be compared is not served: when the store
// cannot be read, the tools of its servers are held back. Everything kept for a server has a bound, and what is beyond
// it is held back.
//
// The package reads no files and opens no store: the caller passes both.
package pins

// Config says what is checked about the definitions of tools.
type Config struct {
	// Which definitions of tools and which instructions of servers may pass: "off" (all), "first-use"
	// (what was seen first; it is kept in the store) or "lock" (what the file ctxgate.lock has). A tool
	// whose title, description, schemas or annotations differ is neither listed nor called until
	// `ctxgate pin` approves it; changed instructions are not sent. Prompts and resources are not
	// compared. See docs/pins.md. Default "off".
	Mode string `key:"mode" oneof:"off,first-use,lock"`

	// The file of approved definitions for mode "lock"; a path relative to the config file works. It is
	// read again when it changes. Default empty: ctxgate.lock beside the config file.
	File string `key:"file"`

	// What happens to characters that people do not see but models read (control characters, zero-width
	// and bidirectional ones, Unicode tags) in the titles, descriptions and schemas of tools and in the
	// instructions of servers: "allow" (they pass, with a warning in the log), "mark" (each is replaced
	// by its code, such as <U+200B>) or "refuse" (the tool, or the instructions, are held back). A name
	// with one is refused always. Default "allow"; with profile = "agents", "mark".
	HiddenCharacters string `key:"hidden_characters" oneof:"allow,mark,refuse"`

	// What happens to tools and prompts whose names clients see as the same but for case, or for letters
	// that look alike (a Cyrillic а in a Latin name): "refuse" (the first in the order of the
	// configuration is served, the others are not) or "allow". Default "refuse".
	LookAlikes string `key:"look_alikes" oneof:"refuse,allow"`
}

// The values of the keys.
const (
	ModeOff      = "off"
	ModeFirstUse = "first-use"
	ModeLock     = "lock"

	HiddenAllow  = "allow"
	HiddenMark   = "mark"
	HiddenRefuse = "refuse"

	LookAlikesRefuse = "refuse"
	LookAlikesAllow  = "allow"
)

// LockFile is the name of the file of approved definitions.
const LockFile = "ctxgate.lock"

// Default is the configuration of an empty file.
func Default() Config {
	return Config{Mode: ModeOff, HiddenCharacters: HiddenAllow, LookAlikes: LookAlikesRefuse}
}
