// Package frame cuts a stream between MCP peers into messages: a child server's stdout or our
// own client's stdin on the way in, the other two on the way out. A [Reader] gives one JSON text
// after another, a [Writer] sends them without ever making its caller wait for a slow peer.
//
// Path through the files: reader.go decides what each line is, header.go knows the headers of
// Content-Length framing, source.go is the read-ahead buffer, spool.go holds a message that is
// longer than it, writer.go is the way out.
//
// Invariants:
//   - A message is never larger than the cap, and a line without an end holds no more than the
//     cap and a small constant; the oversized is skipped and said, the next message is read.
//   - What a Reader gives depends on the bytes alone, never on how they were split into reads.
//   - Whatever came before, a message on a line of its own is found (in newline framing; in
//     Content-Length framing the next header is).
//   - Order and bytes of what is sent are kept. Only raw line ends between JSON tokens become
//     spaces, in newline framing, where they would cut the message in two.
//
// JSON is not checked here. When the stream under a Reader or Writer fails, that error is what
// every later call returns; a peer that stops reading turns into [ErrFull].
package frame

import "fmt"

// Framing is how messages are told apart on a stream.
type Framing uint32

const (
	// Newline is one JSON text per line: MCP's stdio transport.
	Newline Framing = iota
	// ContentLength is a header with the size before each JSON text, as language servers do it.
	ContentLength
)

func (f Framing) String() string {
	if f == ContentLength {
		return "content-length"
	}
	return "newline"
}

const (
	ends       = 512 // how much of each end of an oversized message is kept
	impatience = 4   // so many times the cap are awaited before an oversized message is said
)

// TooLarge is a message over the cap, or one that there was no memory for. Its ends are kept because the id of a JSON-RPC message
// stands first or last, and whoever waits for that id should hear of it.
type TooLarge struct {
	Size int64  // as far as known: a line may still go on
	Head []byte // the first 512 bytes
	Tail []byte // the last 512 bytes of what was read
	Err  error  // why there was no memory for it; nil when it is over the cap
}

func (e *TooLarge) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("a message of at least %d bytes is over the limit", e.Size)
}

// Unwrap gives errors.As the refusal.
func (e *TooLarge) Unwrap() error { return e.Err }
