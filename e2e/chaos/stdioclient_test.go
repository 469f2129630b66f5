//go:build linux

package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// pipeClient speaks newline-delimited JSON with a process: `ctxgate stdio`, or a fake.
type pipeClient struct {
	era     era
	can     string
	cmd     *exec.Cmd
	answers func(frame) string

	write   sync.Mutex
	in      io.WriteCloser
	mu      sync.Mutex
	waiting map[string]*waiter // by request id
	tokens  map[string]string  // progress token → request id
	strays  []string           // what came and belonged to nobody
	ended   chan struct{}
}

type waiter struct {
	ask    ask
	got    answer
	answer chan struct{}
}

// spawn starts a process and begins to speak with it.
func spawn(ctx context.Context, e era, can string, stderr io.Writer, env []string, command ...string) (*pipeClient, error) {
	c := &pipeClient{era: e, can: can, answers: obliging, waiting: map[string]*waiter{}, tokens: map[string]string{}, ended: make(chan struct{})}
	c.cmd = exec.Command(command[0], command[1:]...)
	c.cmd.Env, c.cmd.Stderr = env, stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, w, err := os.Pipe() // our own, so that Wait does not close it under the reader
	if err != nil {
		return nil, err
	}
	c.in, c.cmd.Stdout = in, w
	err = c.cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	go c.read(out)
	if e == legacy {
		err = c.handshake(ctx)
	}
	return c, err
}

func (c *pipeClient) handshake(ctx context.Context) error {
	got, err := c.ask(ctx, ask{id: `"init"`, method: "initialize", params: fmt.Sprintf(
		`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"chaos","version":"1"}}`, c.era, c.can)})
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if got.Result == nil {
		return fmt.Errorf("initialize: %s", got.Error)
	}
	return c.notify(ctx, "notifications/initialized", "{}")
}

// close ends the input, and after a while the process.
func (c *pipeClient) close() {
	_ = c.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	<-c.ended
	_ = c.cmd.Wait() // what came of it is not asked here
}

func (c *pipeClient) read(out *os.File) {
	defer close(c.ended)
	defer out.Close()
	for lines := bufio.NewReaderSize(out, 64<<10); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			c.fail(line)
			return
		}
		f, err := parse([]byte(line))
		if err != nil {
			c.stray(err.Error())
			continue
		}
		c.sort(f)
	}
}

// fail wakes everybody: nothing more will come.
func (c *pipeClient) fail(rest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rest != "" {
		c.strays = append(c.strays, fmt.Sprintf("half a line: %.80q", rest))
	}
	for id, w := range c.waiting {
		delete(c.waiting, id)
		close(w.answer)
	}
}

func (c *pipeClient) sort(f frame) {
	if f.isRequest() {
		go func() { _ = c.writeLine(response(f.ID, c.answers(f))) }()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[c.owner(f)]
	switch {
	case w == nil && f.Method != "" && f.Method != "notifications/progress":
		// an announcement to all
	case w == nil:
		c.strays = append(c.strays, fmt.Sprintf("for nobody: %.120s", toJSON(f)))
	case f.isResponse():
		delete(c.waiting, string(f.ID))
		w.got.frame, w.got.at = f, time.Now()
		close(w.answer)
	default:
		if w.got.before = append(w.got.before, f); w.ask.note != nil {
			w.ask.note(f)
		}
	}
}

// owner is the request a message belongs to.
func (c *pipeClient) owner(f frame) string {
	p := f.read()
	switch {
	case f.isResponse():
		return string(f.ID)
	case f.Method == "notifications/progress":
		return c.tokens[string(p.ProgressToken)]
	case p.Meta.Subscription != nil:
		return string(p.Meta.Subscription)
	}
	return ""
}

func (c *pipeClient) stray(what string) {
	c.mu.Lock()
	c.strays = append(c.strays, what)
	c.mu.Unlock()
}

// lost is what came and belonged to nobody.
func (c *pipeClient) lost() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.strays...)
}

func (c *pipeClient) writeLine(message []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	_, err := c.in.Write(append(message, '\n'))
	return err
}

func (c *pipeClient) notify(_ context.Context, method, params string) error {
	return c.writeLine(notification(method, params))
}

func (c *pipeClient) ask(ctx context.Context, a ask) (answer, error) {
	w := &waiter{ask: a, answer: make(chan struct{})}
	c.mu.Lock()
	c.waiting[a.id] = w
	if a.token != "" {
		c.tokens[a.token] = a.id
	}
	c.mu.Unlock()
	if err := c.writeLine(request(a.id, a.method, a.body(c.era, c.can))); err != nil {
		return answer{}, err
	}
	select {
	case <-w.answer:
		if !w.got.isResponse() {
			return w.got, errors.New("the process ended")
		}
		return w.got, nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, a.id)
		c.mu.Unlock()
		return answer{}, ctx.Err()
	}
}

// quickExit is for fakes under the race detector, whose runtime sleeps for a second at every exit
// unless told otherwise.
const quickExit = "GORACE=atexit_sleep_ms=0"

// fakeCommand is the command line of a fake on a pipe.
func fakeCommand(server string, book *ledger, flags ...string) []string {
	return append([]string{self, "fake-stdio", "-server", server, "-ledger", book.path}, flags...)
}

// textOf is the text of a tool's result.
func textOf(f frame) string {
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if jsonInto(f.Result, &r) != nil || len(r.Content) == 0 {
		return ""
	}
	var b strings.Builder
	for _, c := range r.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}
