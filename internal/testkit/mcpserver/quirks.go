//go:build linux

package mcpserver

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// quirks are deviations from the protocol's framing.
type quirks struct {
	crlf   bool
	bom    bool // byte order mark before the first frame
	pair   bool // two frames in one write
	idLast bool
	lsp    bool // Content-Length framing, both ways
	junk   int  // a junk line before every n-th frame
	drip   int  // milliseconds between the bytes of a tool result
}

// stdoutWriter writes frames to stdout, with quirks.
type stdoutWriter struct {
	quirks
	mu         sync.Mutex
	w          io.Writer
	frameCount int
	heldFrame  []byte // first of a pair
	hasCalls   bool   // a tool was called
}

// writeRaw writes bytes that are no frame.
func (p *stdoutWriter) writeRaw(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.w.Write(b) // if the reader is gone, stdin ends soon
}

func (p *stdoutWriter) send(message []byte) {
	if p.idLast {
		message = withIDLast(message)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frameCount++
	out := p.encodeFrame(message)
	if p.pair && p.hasCalls {
		out = p.pairFrames(out)
	}
	if p.drip > 0 && bytes.Contains(message, []byte(`"content":`)) { // only tool results: lists would take minutes
		for i := range out {
			_, _ = p.w.Write(out[i : i+1])
			time.Sleep(time.Duration(p.drip) * time.Millisecond)
		}
		return
	}
	_, _ = p.w.Write(out)
}

// encodeFrame frames a message, with quirks.
func (p *stdoutWriter) encodeFrame(message []byte) []byte {
	var b []byte
	if p.bom && p.frameCount == 1 {
		b = append(b, "\xef\xbb\xbf"...)
	}
	if p.junk > 0 && p.frameCount%p.junk == 0 {
		b = append(b, junk[p.frameCount/p.junk%len(junk)]...)
	}
	if p.lsp {
		return append(fmt.Appendf(b, "Content-Length: %d\r\n\r\n", len(message)), message...)
	}
	b = append(b, message...)
	if p.crlf {
		b = append(b, '\r')
	}
	return append(b, '\n')
}

// pairFrames holds a frame for the next one, at most 30 ms, and returns what to write now.
func (p *stdoutWriter) pairFrames(out []byte) []byte {
	if p.heldFrame != nil {
		out = append(p.heldFrame, out...)
		p.heldFrame = nil
		return out
	}
	p.heldFrame = out
	time.AfterFunc(30*time.Millisecond, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.heldFrame != nil {
			_, _ = p.w.Write(p.heldFrame)
			p.heldFrame = nil
		}
	})
	return nil
}

// markCalled records the first tool call: frames are paired only after the handshake.
func (p *stdoutWriter) markCalled() {
	p.mu.Lock()
	p.hasCalls = true
	p.mu.Unlock()
}

// withIDLast encodes a message with its id as the last member.
func withIDLast(message []byte) []byte {
	f, err := mcpwire.ParseMessage(message)
	if err != nil || f.ID == nil {
		return message
	}
	id := f.ID
	f.ID = nil
	body := []byte(mcpwire.EncodeJSON(f))
	return fmt.Appendf(body[:len(body)-1], `,"id":%s}`, id)
}

// junk is what real servers print on stdout: one or more lines each.
var junk = [][]byte{
	[]byte("Starting MCP server v1.2.3 on stdio\n"),
	[]byte("\x1b[32m✔\x1b[0m \x1b[1mready\x1b[0m in 12ms\n"),
	append(utf16le("Le serveur est prêt à 20 °C\r\n"), '\n'), // Windows: the last line feed is half a character
	[]byte(`{"jsonrpc":"2.0","id":1,"resu` + "\n"),
	[]byte(`{"level":"info","msg":"not a message of the protocol"}` + "\n"),
	[]byte(`"jsonrpc"` + "\n"),
	[]byte("[]\n"),
	[]byte("null\n"),
	[]byte("\n\n\r\n"),
	[]byte("npm WARN deprecated left-pad@1.0.0: use String.prototype.padStart()\n"),
	append(bytes.Repeat([]byte("="), 4000), '\n'),
	[]byte("\x00\x01\x02\xff\xfe\n"),
	[]byte("Content-Type: text/plain\n"),
	[]byte("{{{{{{{{\n"),
}

func utf16le(text string) []byte {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(text)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return b
}
