package toolcalls

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Caller is an MCP client (2025-11-25) with one connection and one session.
type Caller struct {
	conn    net.Conn
	read    *bufio.Reader
	head    string // headers of every request
	path    string
	tool    string
	reply   bytes.Buffer
	made    int
	readIDs int
	ids     []string // of what was cut in replies, the last keptIDs
}

const keptIDs = 4096

// Options say where a caller calls.
type Options struct {
	Address string
	Path    string // "/mcp" unless set
	Tool    string // the name of the tool read, "read" unless set
	Token   string // a bearer token
}

var nonces atomic.Int64 // no text of this process repeats

// Connect connects a caller and starts its session.
func Connect(ctx context.Context, o Options) (*Caller, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, err
	}
	c := &Caller{conn: conn, read: bufio.NewReaderSize(conn, 64<<10), path: o.Path, tool: o.Tool}
	if c.path == "" {
		c.path = "/mcp"
	}
	if c.tool == "" {
		c.tool = "read"
	}
	c.head = "Host: " + o.Address + "\r\nUser-Agent: toolcalls\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	if o.Token != "" {
		c.head += "Authorization: Bearer " + o.Token + "\r\n"
	}
	if err := c.startSession(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// Close closes the connection.
func (c *Caller) Close() error { return c.conn.Close() }

func (c *Caller) startSession() error {
	header, _, err := c.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"toolcalls","version":"1"}}}`)
	if err != nil {
		return err
	}
	if id := header.Get("Mcp-Session-Id"); id != "" {
		c.head += "Mcp-Session-Id: " + id + "\r\n"
	}
	c.head += "MCP-Protocol-Version: 2025-11-25\r\n"
	_, _, err = c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return err
}

// Call makes one call and reports whether its result was cut, or for Read whether the original came.
func (c *Caller) Call(kind Kind) (bool, error) {
	c.made++
	if kind.Read {
		if len(c.ids) == 0 {
			return false, errors.New("no id to read")
		}
		c.readIDs++
		_, reply, err := c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":%q}}}`, c.made, c.ids[c.readIDs%len(c.ids)]))
		if err == nil && bytes.Contains(reply, []byte(`"isError":true`)) {
			err = fmt.Errorf("recover_text: %s", reply)
		}
		return err == nil, err
	}
	nonce := "the same text"
	if kind.Fresh {
		nonce = fmt.Sprintf("text %d", nonces.Add(1))
	}
	_, reply, err := c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"bytes":%d,"nonce":%q}}}`, c.made, c.tool, kind.Bytes, nonce))
	if err != nil {
		return false, err
	}
	if !bytes.Contains(reply, []byte(`"result":`)) {
		return false, fmt.Errorf("tools/call: %s", reply)
	}
	_, after, cut := bytes.Cut(reply, []byte("prune_id="))
	if cut {
		id := string(after[:min(len(after), 128)])
		if end := strings.IndexAny(id, " ]\\\""); end > 0 {
			id = id[:end]
		}
		if c.ids = append(c.ids, id); len(c.ids) > keptIDs {
			c.ids = c.ids[len(c.ids)-keptIDs:]
		}
	}
	return cut, nil
}

func (c *Caller) post(body string) (http.Header, []byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, nil, err
	}
	if _, err := fmt.Fprintf(c.conn, "POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s", c.path, c.head, len(body), body); err != nil {
		return nil, nil, err
	}
	resp, err := http.ReadResponse(c.read, nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	c.reply.Reset()
	_, err = c.reply.ReadFrom(resp.Body)
	reply := c.reply.Bytes()
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", resp.Status, reply)
	}
	return resp.Header, reply, err
}
