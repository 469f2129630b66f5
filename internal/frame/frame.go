// Package frame reads and writes the JSON messages of the stdio transport: a [Reader] splits a stream into messages, a
// [Writer] sends them without blocking its caller on a slow peer.
//
// Path through the files: reader.go decides what each line is, header.go parses the headers of Content-Length framing and
// has the read-ahead buffer, spool.go holds a message that is longer than that buffer, writer.go sends.
//
// Invariants:
//   - A message is never larger than the limit, and an endless line holds no more memory than the limit and a small
//     constant. An oversized message is skipped and reported, and the next one is read.
//   - What a Reader returns depends on the bytes alone, never on how they were split into reads.
//   - Whatever came before, a message on a line of its own is found (in newline framing; in Content-Length framing, the
//     next header is).
//   - The Writer keeps order and bytes. Only in newline framing, raw line ends between JSON tokens become spaces, since
//     they would split the message.
//
// JSON is not validated here. If the stream under a Reader or Writer fails, every later call returns that error. A peer
// that stops reading causes [ErrFull].
package frame

import "fmt"

// Framing is how messages are separated on a stream.
type Framing uint32

const (
	// Newline is one JSON text per line, as MCP's stdio transport demands.
	Newline Framing = iota
	// ContentLength is a header with the size before each JSON text, as in the Language Server Protocol.
	ContentLength
)

func (f Framing) String() string {
	if f == ContentLength {
		return "content-length"
	}
	return "newline"
}

const (
	endBytes   = 512 // how much of each end of an oversized message is kept
	skipFactor = 4   // an oversized message is reported after so many times the limit, even if it has not ended
)

// TooLargeError is a message over the limit, or one for which there was no memory. It has both ends of the message,
// because the id of a JSON-RPC message stands first or last, and the request with that id must fail.
type TooLargeError struct {
	Size int64  // as far as known: the line may not have ended
	Head []byte // the first 512 bytes
	Tail []byte // the last 512 bytes of what was read
	Err  error  // why there was no memory; nil for a message over the limit
}

func (e *TooLargeError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("a message of at least %d bytes is over the limit", e.Size)
}

// Unwrap is the reason why there was no memory.
func (e *TooLargeError) Unwrap() error { return e.Err }
