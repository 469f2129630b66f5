// Package sse reads and writes server-sent events, the WHATWG's text/event-stream, as MCP's HTTP
// transports and LLM APIs use them.
//
// Path through the files: sse.go holds the Event; scanner.go finds fields and events in a stream that
// comes in pieces, and everything that reads a stream is built on it: reader.go reads whole events from
// an io.Reader, splitter.go cuts a stream that passes by into its events. chunks.go collects a value of
// unknown length; writer.go writes events.
//
// Invariants: the events do not depend on how the stream was cut into pieces. An event is handed out when
// the line that ends it has come, without waiting for a byte more. A byte of data is copied at most
// twice, however long its line, and no more is kept than the limit on one event allows. What is written
// reads back the same, and nothing in a name, an id or a message can start a line of its own.
//
// A stream that breaks off inside an event ends in io.ErrUnexpectedEOF and that event is dropped, as the
// standard says; one that ends between events ends in io.EOF. Every error is final.
package sse

import "time"

// Event is one server-sent event.
type Event struct {
	// Name is the event's type; empty means "message".
	Name string
	// ID is the event's id where HasID says that it came with one. An empty id is an id: it
	// tells the client to forget the last one.
	ID    string
	HasID bool
	// Data is the event's text, its lines joined with LF. It is nil when the event had no data
	// field, and empty when it had an empty one.
	Data []byte
	// Retry is how long to wait before connecting again; 0 when the event does not say.
	Retry time.Duration
}
