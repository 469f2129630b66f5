//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf16"
)

// quirks are how a fake's pipe differs from what the protocol asks for.
type quirks struct {
	crlf   bool
	bom    bool // a byte order mark before the first frame
	pair   bool // two frames in one write
	idLast bool
	lsp    bool // Content-Length framing, both ways
	junk   int  // a line of junk before every n-th frame
	drip   int  // milliseconds between the bytes of a tool's answer
}

// pipe writes frames to stdout.
type pipe struct {
	quirks
	mu     sync.Mutex
	w      io.Writer
	frames int
	held   []byte // the first of a pair
	calls  bool   // calls have begun
}

// raw writes bytes that are no frame.
func (p *pipe) raw(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.w.Write(b) // whoever reads may be gone; then so are we, soon
}

func (p *pipe) send(message []byte) {
	if p.idLast {
		message = withIDLast(message)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames++
	out := p.dress(message)
	if p.pair && p.calls {
		out = p.hold(out)
	}
	if p.drip > 0 && bytes.Contains(message, []byte(`"content":`)) { // lists would take minutes
		for i := range out {
			_, _ = p.w.Write(out[i : i+1])
			time.Sleep(time.Duration(p.drip) * time.Millisecond)
		}
		return
	}
	_, _ = p.w.Write(out)
}

// dress puts around a message what the quirks want.
func (p *pipe) dress(message []byte) []byte {
	var b []byte
	if p.bom && p.frames == 1 {
		b = append(b, "\xef\xbb\xbf"...)
	}
	if p.junk > 0 && p.frames%p.junk == 0 {
		b = append(b, junk[p.frames/p.junk%len(junk)]...)
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

// hold keeps a frame until the next one, or a moment, and gives what is to be written now.
func (p *pipe) hold(out []byte) []byte {
	if p.held != nil {
		out = append(p.held, out...)
		p.held = nil
		return out
	}
	p.held = out
	time.AfterFunc(30*time.Millisecond, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.held != nil {
			_, _ = p.w.Write(p.held)
			p.held = nil
		}
	})
	return nil
}

// called says that the handshake is over.
func (p *pipe) called() {
	p.mu.Lock()
	p.calls = true
	p.mu.Unlock()
}

// withIDLast writes a message with its id where a careless reader no longer looks.
func withIDLast(message []byte) []byte {
	f, err := parse(message)
	if err != nil || f.ID == nil {
		return message
	}
	id := f.ID
	f.ID = nil
	body := []byte(toJSON(f))
	return fmt.Appendf(body[:len(body)-1], `,"id":%s}`, id)
}

// junk is what real servers print on their stdout: each a line, or several.
var junk = [][]byte{
	[]byte("Starting MCP server v1.2.3 on stdio\n"),
	[]byte("\x1b[32m✔\x1b[0m \x1b[1mready\x1b[0m in 12ms\n"),
	append(utf16le("Le serveur est prêt à 20 °C\r\n"), '\n'), // Windows; its last line feed is half a character
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
