package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/child"
	"github.com/ctxgate/ctxgate/internal/frame"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
)

const (
	probeTime  = 5 * time.Second       // the longest to wait for an answer in the newest revision
	fullWait   = time.Second           // how long a call waits for a program that does not read
	lastWords  = time.Second / 2       // how long to wait for how a program ended whose stdout has
	firstAsk   = 5 * time.Millisecond  // before the next look whether it reads again
	lastAsk    = 40 * time.Millisecond // the same, when it has not for a while
	junkBudget = 10_000                // lines that are no message, in a row, before a program is given up
)

// pipe is the wire to a program: its stdin and stdout.
type pipe struct {
	conn   *Conn
	prog   *child.Child
	in     *frame.Reader
	out    *frame.Writer
	grace  time.Duration
	heard  atomic.Bool  // it has sent a message
	junk   atomic.Int64 // lines in a row that were none
	stderr *rate.Limiter

	dropped atomic.Int64 // lines of stderr that were not logged
}

// dialPipe starts the program and greets it.
func (r *Remote) dialPipe(ctx context.Context, c *Conn, l *Lane) (*Conn, error) {
	p := &pipe{conn: c, grace: r.entry.ShutdownGrace.D(), stderr: rate.NewLimiter(20, 200)}
	prog, err := child.Start(child.Spec{
		Command: r.entry.Command,
		Env:     child.Environment(r.deps.Env, reveal(r.entry.Env)),
		Stderr:  func(line string) { p.log(r.entry.ID, line) },
	})
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, "the server cannot be started", err)
	}
	p.prog = prog
	p.in = frame.NewReader(prog.Stdout(), int64(r.cfg.MaxReplyBytes), p.stray)
	p.in.Charge(c.memory)
	first := r.firstFraming()
	p.out = frame.NewWriter(prog.Stdin(), frame.Limits{}, func() frame.Framing {
		if !p.heard.Load() {
			return first
		}
		return p.in.Framing()
	})
	c.wire = p
	go p.read()
	if err := p.greet(ctx, r.order(l), l.client); err != nil {
		crashed := c.Why() != nil
		c.end(err)
		c.Close()
		if l.key.older {
			return nil, olderFailure(err, crashed)
		}
		r.puzzled(p, crashed)
		return nil, fault.Wrap(fault.Unavailable, "the server did not start", err)
	}
	r.hears(p)
	return c, nil
}

// greet finds out the server's era, unless it is known, within the time a start may take.
func (p *pipe) greet(ctx context.Context, order greetOrder, client mcp.Client) error {
	var refused error
	if order != newerFirst {
		refused = p.conn.initialize(ctx, client)
		if refused == nil || order == olderOnly || fault.KindOf(refused) != fault.BadReply || p.conn.Why() != nil {
			return refused
		}
	}
	probe, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	known, err := p.conn.discover(probe, client)
	switch {
	case known || err != nil:
		return err
	case refused != nil:
		return refused
	}
	return p.conn.initialize(ctx, client)
}

// firstFraming is how to speak to a program that has not said anything yet.
func (r *Remote) firstFraming() frame.Framing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.framing
}

// hears remembers the framing of a program that has spoken: the next start begins with it.
func (r *Remote) hears(p *pipe) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.heard.Load() {
		r.framing = p.in.Framing()
	}
}

// puzzled notes that a program could not be greeted. One that lives and never says a word may wait
// for the other framing; one that fell over the question of the newest revision gets the older
// greeting.
func (r *Remote) puzzled(p *pipe, crashed bool) {
	r.hears(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.era != 0 { // it may have become another server
		r.era = 0
		return
	}
	if !p.heard.Load() && r.stumbled && !crashed {
		r.framing = frame.ContentLength - r.framing
	}
	r.stumbled = !r.stumbled
}

func (p *pipe) read() {
	defer p.conn.guard(nil)
	defer p.prog.Stdout().Close()
	for {
		msg, err := p.in.Next()
		var big *frame.TooLarge
		switch {
		case errors.As(err, &big):
			p.oversize(big)
		case err != nil:
			p.ended(err)
			return
		default:
			p.heard.Store(true)
			if p.conn.takeShared(msg, p.in.Charged()) {
				p.junk.Store(0)
			} else {
				p.wasted()
			}
		}
	}
}

// ended says why the program's stdout is at its end.
func (p *pipe) ended(err error) {
	why := fmt.Errorf("stdout: %w", err)
	if errors.Is(err, io.EOF) {
		why = errors.New("the program closed its stdout")
	}
	select {
	case <-p.prog.Done(): // how it ended says more
		if e := p.prog.Err(); e != nil {
			why = fmt.Errorf("the program ended: %w", e)
		}
	case <-time.After(lastWords):
	}
	p.conn.end(fault.Wrap(fault.Unavailable, "the server went away during the call", why))
}

// stray counts a line that is no message.
func (p *pipe) stray(line []byte) {
	p.conn.odd(nil, "a server printed what is no message", fmt.Errorf("%.80q", line))
	p.wasted()
}

// wasted gives a program up that prints nothing but what is no message.
func (p *pipe) wasted() {
	if p.junk.Add(1) == junkBudget {
		p.conn.end(fault.New(fault.BadReply, "the server prints what is no message"))
	}
}

// oversize fails the call that a message over the limit answers, or one that there is no memory for. Its id stands first or last.
func (p *pipe) oversize(e *frame.TooLarge) {
	err := e.Err // there was no memory for it
	if err == nil {
		err = tooLarge(e)
	}
	p.conn.odd(p.conn.flightIn(e.Head, e.Tail), "a server's message is too large", err)
}

// named finds the call whose id stands at either end of a message.
func (c *Conn) named(head, tail []byte) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range []int64{idInHead(head), idInTail(tail)} {
		if f := c.flights[id]; f != nil {
			return f
		}
	}
	return nil
}

// flightIn finds the call that the ends of a message name, or the only one under way.
func (c *Conn) flightIn(head, tail []byte) *flight {
	if f := c.named(head, tail); f != nil {
		return f
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flights) == 1 {
		for _, f := range c.flights {
			return f
		}
	}
	return nil
}

// idInHead is the id of a message that begins so; 0 when it is not there. An id inside of something
// is not the message's.
func idInHead(head []byte) int64 {
	before, after, _ := bytes.Cut(head, []byte(`"id"`))
	if bytes.Count(before, []byte("{")) != 1 || bytes.IndexByte(before, '[') >= 0 {
		return 0
	}
	return number(after)
}

// idInTail is the id of a message that ends so: after it nothing ends but the message.
func idInTail(tail []byte) int64 {
	key := []byte(`"id"`)
	at := bytes.LastIndex(tail, key)
	if at < 0 {
		return 0
	}
	after := tail[at+len(key):]
	if bytes.ContainsAny(after, "{[]") || bytes.Count(after, []byte("}")) != 1 {
		return 0
	}
	return number(after)
}

// number is the number after a colon; 0 for anything else.
func number(text []byte) int64 {
	digits, ok := bytes.CutPrefix(bytes.TrimLeft(text, " \t"), []byte(":"))
	digits = bytes.TrimLeft(digits, " \t")
	end := bytes.IndexFunc(digits, func(c rune) bool { return c < '0' || c > '9' })
	if !ok || end < 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(digits[:end]), 10, 64)
	return n
}

// send queues a message for the program. A burst waits a moment for it to read; a program that
// does not read makes the call fail, and nothing else wait. That one died is about to be noticed. Who
// waits asks less and less often: hundreds that do would take the time of other servers.
func (p *pipe) send(_ *flight, msg []byte) error {
	deadline := time.Now().Add(fullWait)
	for pause := firstAsk; ; pause = min(2*pause, lastAsk) {
		err := p.out.Send(msg)
		switch {
		case err == nil:
			return nil
		case time.Now().After(deadline):
			return unsent(err)
		}
		select {
		case <-time.After(pause):
		case <-p.conn.ended:
			return unbegun{lost(p.conn.Why())}
		}
	}
}

// unsent is the failure of a message that a program would not take though it lives.
func unsent(err error) error {
	if errors.Is(err, frame.ErrFull) {
		return fault.Wrap(fault.Full, "the server does not take any more", err)
	}
	return fault.Wrap(fault.Unavailable, "the server is not available", err)
}

func (p *pipe) cancel(f *flight, reason string) {
	if f.call.Method == mcp.Initialize {
		return // the one request that must not be cancelled
	}
	_ = p.out.Send(cancellation(f.id, reason))
}

func cancellation(id int64, reason string) []byte {
	return notification(mcp.Cancelled, fmt.Appendf(nil, `{"requestId":%d,"reason":%q}`, id, reason))
}

// close ends the program, stdin first. Nobody waits for it but the lane that starts the next.
func (p *pipe) close() {
	_ = p.out.Close(100 * time.Millisecond)
	p.prog.Stop(p.grace)
}

// log passes a line of the program's stderr on, at the level that the line names. Of a flood the first
// lines are logged, and how many were not.
func (p *pipe) log(server, line string) {
	if !p.stderr.Allow() {
		p.dropped.Add(1)
		return
	}
	redact := secret.Redact
	if len(line) >= child.MaxLine {
		redact = secret.RedactHead
	}
	attrs := []any{"server", server, "stderr", redact(line)}
	if n := p.dropped.Swap(0); n > 0 {
		attrs = append(attrs, "lines_dropped", n)
	}
	slog.Log(context.Background(), stderrLevel(line), "server says", attrs...)
}

func reveal(m map[string]secret.Text) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v.Reveal()
	}
	return out
}
