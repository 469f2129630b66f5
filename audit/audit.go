// Package audit writes one line of JSON for every decision that matters: who asked, for what, what was decided and
// by which rule, how much was sent. A line never has contents, arguments or tokens.
//
// Path through the files: audit.go is the [Event], encode.go makes a line of it, log.go is the [Log] with its queue
// and its goroutine, repeated.go counts failures that repeat, chain.go links the lines, head.go keeps the record of the last line, writer.go joins
// them, file.go (with repair.go), stream.go and syslog.go are where lines go, verify.go (with report.go) checks a log.
//
// Invariants:
//   - The sequence has no gaps: a number is given to a line when it is written. A decision that could not be written
//     is counted, and the next line that can be written says how many there were.
//   - Each line has the MAC of the line before and its own, under a key derived from the root secret: who can write
//     the file but has no secret can neither change, insert, reorder nor remove lines without a trace. The last line
//     is recorded in the data directory, so that a missing end is noticed, too.
//   - Memory is bounded: a queue of [maxQueueBytes], and nothing waits for the disk, unless on_failure is "deny".
//
// Several processes may write one log: each takes the lock of the head record for each write, and continues where
// the last one ended.
package audit

import "time"

// What a line is about.
const (
	KindCall    = "call"    // a request to a server, a model or a built-in tool
	KindRead    = "read"    // an original was read back
	KindLimit   = "limit"   // a request beyond a limit was refused
	KindAuth    = "auth"    // a credential was refused
	KindAdmin   = "admin"   // an action of the operator: its method says which
	KindReload  = "reload"  // a new configuration
	KindStart   = "start"   // a process opened the log
	KindStop    = "stop"    // a process closed the log
	KindDropped = "dropped" // decisions that could not be written; count says how many
	KindRepair  = "repair"  // the log was not as the last process left it
)

// The stages of a call. With on_failure = "deny" a call has two lines: one before it is made, one at its end.
const (
	StageStart = "start"
	StageEnd   = "end"
)

// Event is a decision, or something else that an auditor must know. Empty fields are left out of the line.
type Event struct {
	Time  time.Time // zero: now
	Kind  string
	Stage string // "" where a call has one line

	// Who.
	Tenant, Subject, Issuer, Credential, Remote string

	// What. A resource is recorded without user, query and fragment.
	Method, Server, Tool, Resource, Prompt, Model string

	// The decision.
	Decision, Rule, Reason string

	// How it ended: "ok", or the kind of failure.
	Outcome           string
	BytesIn, BytesOut int64
	CharsOut          int64 // of an original that was read back
	CharsCut          int64
	IDs               []string // of the originals that were stored or read; the first maxIDs
	Request           string   // the request's id
	Count             int64    // how often, where one line stands for several
	Duration          time.Duration
}
