package mcpclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// StdioClient is a client of a child process over stdio.
type StdioClient struct {
	revision      mcpwire.Revision
	capabilities  string
	Cmd           *exec.Cmd
	answerRequest func(mcpwire.Message) string

	writeMu        sync.Mutex
	Stdin          io.WriteCloser
	mu             sync.Mutex
	pending        map[string]*pendingCall // by request id
	progressTokens map[string]string       // progress token → request id
	unexpected     []string                // messages that belong to no request
	ended          chan struct{}
}

type pendingCall struct {
	request Request
	reply   Reply
	done    chan struct{}
}

// StartStdio starts a command and connects to it.
func StartStdio(ctx context.Context, e mcpwire.Revision, can string, stderr io.Writer, env []string, command ...string) (*StdioClient, error) {
	c := &StdioClient{revision: e, capabilities: can, answerRequest: AcceptElicitation, pending: map[string]*pendingCall{}, progressTokens: map[string]string{}, ended: make(chan struct{})}
	c.Cmd = exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...) // Close ends it
	c.Cmd.Env, c.Cmd.Stderr = env, stderr
	in, err := c.Cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, w, err := os.Pipe() // not StdoutPipe, which Wait would close under the reader
	if err != nil {
		return nil, err
	}
	c.Stdin, c.Cmd.Stdout = in, w
	err = c.Cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	go c.readMessages(out)
	if e == mcpwire.Legacy {
		err = c.handshake(ctx)
	}
	return c, err
}

func (c *StdioClient) handshake(ctx context.Context) error {
	got, err := c.Call(ctx, Request{ID: `"init"`, Method: "initialize", Params: fmt.Sprintf(
		`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"chaos","version":"1"}}`, c.revision, c.capabilities)})
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if got.Result == nil {
		return fmt.Errorf("initialize: %s", got.Error)
	}
	return c.Notify(ctx, "notifications/initialized", "{}")
}

// Close closes stdin and kills the process if it does not exit within ten seconds.
func (c *StdioClient) Close() {
	_ = c.Stdin.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = c.Cmd.Process.Kill() })
	defer timer.Stop()
	<-c.ended
	_ = c.Cmd.Wait() // the caller can look at Cmd.ProcessState
}

func (c *StdioClient) readMessages(out *os.File) {
	defer close(c.ended)
	defer out.Close()
	for lines := bufio.NewReaderSize(out, 64<<10); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			c.failPending(line)
			return
		}
		f, err := mcpwire.ParseMessage([]byte(line))
		if err != nil {
			c.addUnexpected(err.Error())
			continue
		}
		c.handleMessage(f)
	}
}

// failPending ends all pending calls after the end of the output.
func (c *StdioClient) failPending(rest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rest != "" {
		c.unexpected = append(c.unexpected, fmt.Sprintf("half a line: %.80q", rest))
	}
	for id, w := range c.pending {
		delete(c.pending, id)
		close(w.done)
	}
}

func (c *StdioClient) handleMessage(f mcpwire.Message) {
	if f.IsRequest() {
		go func() { _ = c.writeLine(mcpwire.NewResponse(f.ID, c.answerRequest(f))) }()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.pending[c.requestOf(f)]
	switch {
	case w == nil && f.Method != "" && f.Method != "notifications/progress":
		// a broadcast
	case w == nil:
		c.unexpected = append(c.unexpected, fmt.Sprintf("for no request: %.120s", mcpwire.EncodeJSON(f)))
	case f.IsResponse():
		delete(c.pending, string(f.ID))
		w.reply.Message, w.reply.At = f, time.Now()
		close(w.done)
	default:
		if w.reply.Notifications = append(w.reply.Notifications, f); w.request.OnNotification != nil {
			w.request.OnNotification(f)
		}
	}
}

// requestOf returns the id of the request that a message belongs to.
func (c *StdioClient) requestOf(f mcpwire.Message) string {
	p := f.ParseParams()
	switch {
	case f.IsResponse():
		return string(f.ID)
	case f.Method == "notifications/progress":
		return c.progressTokens[string(p.ProgressToken)]
	case p.Meta.Subscription != nil:
		return string(p.Meta.Subscription)
	}
	return ""
}

func (c *StdioClient) addUnexpected(what string) {
	c.mu.Lock()
	c.unexpected = append(c.unexpected, what)
	c.mu.Unlock()
}

// Unexpected returns the messages that belong to no request, and lines that are no messages.
func (c *StdioClient) Unexpected() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.unexpected...)
}

func (c *StdioClient) writeLine(message []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	_, err := c.Stdin.Write(append(message, '\n'))
	return err
}

// Notify sends a notification.
func (c *StdioClient) Notify(_ context.Context, method, params string) error {
	return c.writeLine(mcpwire.NewNotification(method, params))
}

// Call sends a request and waits for its response.
func (c *StdioClient) Call(ctx context.Context, a Request) (Reply, error) {
	w := &pendingCall{request: a, done: make(chan struct{})}
	c.mu.Lock()
	c.pending[a.ID] = w
	if a.ProgressToken != "" {
		c.progressTokens[a.ProgressToken] = a.ID
	}
	c.mu.Unlock()
	if err := c.writeLine(mcpwire.NewRequest(a.ID, a.Method, a.encodeParams(c.revision, c.capabilities))); err != nil {
		return Reply{}, err
	}
	select {
	case <-w.done:
		if !w.reply.IsResponse() {
			return w.reply, errors.New("the process exited")
		}
		return w.reply, nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.pending, a.ID)
		c.mu.Unlock()
		return Reply{}, ctx.Err()
	}
}

// ResultText is the text of a tool result.
func ResultText(f mcpwire.Message) string {
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(f.Result, &r) != nil || len(r.Content) == 0 {
		return ""
	}
	var b strings.Builder
	for _, c := range r.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}
