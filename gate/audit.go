package gate

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/audit"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
)

// Whatever the gate decides is recorded here, in the audit log. A call that is allowed is recorded at its end, with what
// was sent; where the log is required, also before it is made.

// entry is the line of a call that is under way.
type entry struct {
	began time.Time

	mu    sync.Mutex // a call that waits for input of its client may end after its request
	log   *audit.Log // nil once the line is written
	event audit.Event
}

// newEvent is an event about a caller and a target.
func newEvent(ctx context.Context, kind string, c auth.Caller, t access.Target) audit.Event {
	return audit.Event{
		Kind: kind, Tenant: c.Tenant(), Subject: c.Subject(), Issuer: c.Issuer(), Credential: c.Credential(),
		Method: t.Method, Server: t.Server, Tool: t.Tool, Resource: t.Resource, Prompt: t.Prompt, Model: t.Model,
		Request: audit.RequestID(ctx),
	}
}

func decide(e *audit.Event, d access.Decision) {
	e.Decision, e.Reason, e.Rule = string(d.Effect), d.Reason, "default"
	if d.Rule > 0 {
		e.Rule = strconv.Itoa(d.Rule)
	}
}

// recordAllowed begins the line of a call. The error says that the call must not be made.
func (g *Gate) recordAllowed(ctx context.Context, c auth.Caller, t access.Target, p *Pass) error {
	if !g.audit.Enabled() {
		return nil
	}
	e := &entry{log: g.audit, event: newEvent(ctx, audit.KindCall, c, t), began: time.Now()}
	decide(&e.event, p.Decision)
	if g.audit.Required() {
		e.event.Stage = audit.StageStart
		if err := g.audit.Require(ctx, &e.event); err != nil {
			e.event.Stage, e.event.Decision, e.event.Reason = audit.StageEnd, string(access.Deny), "the line before the call could not be written"
			g.audit.Record(&e.event)
			return err
		}
		e.event.Stage = audit.StageEnd
	}
	p.entry = e
	return nil
}

func (g *Gate) recordDenied(ctx context.Context, c auth.Caller, t access.Target, d access.Decision) {
	if g.audit.Enabled() {
		e := newEvent(ctx, audit.KindCall, c, t)
		decide(&e, d)
		g.audit.Record(&e)
	}
}

// recordLimit records a request beyond a limit. A caller that goes on has its requests counted.
func (g *Gate) recordLimit(ctx context.Context, c auth.Caller, t access.Target, err error) {
	if g.audit.Enabled() {
		e := newEvent(ctx, audit.KindLimit, c, t)
		e.Decision, e.Reason = string(access.Deny), fault.PublicOf(err)
		g.audit.RecordRepeated(&e)
	}
}

// RefuseCredential records that the credential of a request was refused. remote is the sender's address; "" on stdin.
func (g *Gate) RefuseCredential(ctx context.Context, remote string, err error) {
	if g.audit.Enabled() {
		g.audit.RecordRepeated(&audit.Event{
			Kind: audit.KindAuth, Remote: remote, Decision: string(access.Deny), Reason: fault.PublicOf(err), Request: audit.RequestID(ctx),
		})
	}
}

// Refuse records that the credential of an HTTP request was refused, and sets the header of the reply that says which
// one is needed.
func (g *Gate) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set("WWW-Authenticate", g.Challenge(r, err))
	host, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		host = r.RemoteAddr
	}
	g.RefuseCredential(r.Context(), host, err)
}

// RecordRead records that a caller read an original back, or could not. id is "" where the caller named no id.
func (g *Gate) RecordRead(ctx context.Context, c auth.Caller, id string, chars int, err error) {
	if !g.audit.Enabled() {
		return
	}
	e := newEvent(ctx, audit.KindRead, c, access.Target{Method: "recover_text"})
	e.Decision, e.Outcome, e.CharsOut = string(access.Allow), outcomeOK, int64(chars)
	if id != "" {
		e.IDs = []string{id}
	}
	if err != nil {
		e.Outcome = fault.KindOf(err).String()
	}
	if err != nil && fault.KindOf(err) == fault.UnknownHandle { // it does not exist, or not for this caller, who may guess
		e.Decision = string(access.Deny)
		g.audit.RecordRepeated(&e)
		return
	}
	g.audit.Record(&e)
}

const outcomeOK = "ok"

// Reply records the size of a reply, as it came and as the caller gets it. isError says that it is an error of the
// server.
func (p *Pass) Reply(bytesIn, bytesOut int, isError bool) {
	p.entry.edit(func(e *audit.Event) {
		e.BytesIn, e.BytesOut, e.Outcome = int64(bytesIn), int64(bytesOut), outcomeOK
		if isError {
			e.Outcome = "error"
		}
	})
}

// Cut records what was left out of a reply, and the ids of the originals.
func (p *Pass) Cut(chars int64, ids []string) {
	p.entry.edit(func(e *audit.Event) { e.CharsCut, e.IDs = chars, ids })
}

// Fail records why there is no reply.
func (p *Pass) Fail(err error) {
	p.entry.edit(func(e *audit.Event) { e.Outcome = fault.KindOf(err).String() })
}

// edit changes the line of a call, if there is one.
func (e *entry) edit(change func(*audit.Event)) {
	if e != nil {
		e.mu.Lock()
		change(&e.event)
		e.mu.Unlock()
	}
}

// finish writes the line, once.
func (e *entry) finish() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.event.Duration = time.Since(e.began)
	e.log.Record(&e.event)
	e.log = nil
}
