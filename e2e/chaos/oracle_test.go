//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// verdict is what became of a call.
type verdict int

const (
	pending   verdict = iota
	ok                // the right answer, once
	failed            // a well-formed error
	malformed         // an error that is not well formed
	lost              // no answer
	corrupt           // somebody else's answer, or more than one
	unsent            // nobody listened: the call never was
)

var verdictNames = map[verdict]string{pending: "pending", ok: "ok", failed: "error", malformed: "malformed", lost: "lost", corrupt: "corrupt", unsent: "unsent"}

func (v verdict) String() string { return verdictNames[v] }

// call is one call of a load: what was asked, and what came of it.
type call struct {
	id     string
	token  string
	nonce  string
	tenant string
	server string // the intended one; also the prefix of the tool's name
	tool   string
	more   string    // further arguments, as JSON members
	due    time.Time // when it was meant to be sent: waiting for a slow peer counts
	ended  time.Time

	verdict verdict
	why     string // what is wrong, or the reason of the error
	echo    echoed
	got     answer
}

func (c *call) took() time.Duration { return c.ended.Sub(c.due) }

// request is the call on the wire.
func (c *call) request(prefix string) ask {
	args := fmt.Sprintf(`{"nonce":%q,"tenant":%q`, c.nonce, c.tenant)
	if c.more != "" {
		args += "," + c.more
	}
	return ask{id: c.id, token: c.token, method: "tools/call", params: fmt.Sprintf(`{"name":%q,"arguments":%s}}`, prefix+c.tool, args)}
}

// make calls and judges. The tool's name is the server's, two colons, and its own.
func (c *call) make(ctx context.Context, p peer) { c.makeAs(ctx, p, c.server+"::") }

func (c *call) makeAs(ctx context.Context, p peer, prefix string) {
	if c.due.IsZero() {
		c.due = time.Now()
	}
	got, err := p.ask(ctx, c.request(prefix))
	c.ended = got.at
	if c.ended.IsZero() {
		c.ended = time.Now()
	}
	c.got = got
	c.verdict, c.why = c.judge(got, err)
}

// judge tells the right answer from all others.
func (c *call) judge(got answer, err error) (verdict, string) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return unsent, "connection refused"
	case err != nil && !got.isResponse():
		return lost, explain(err)
	case err != nil:
		return corrupt, err.Error()
	case string(got.ID) != c.id && got.Error == nil:
		return corrupt, fmt.Sprintf("answered with id %s, asked with %s", got.ID, c.id)
	}
	if why := c.stray(got); why != "" {
		return corrupt, why
	}
	if got.Error != nil {
		return c.judgeError(got)
	}
	return c.judgeResult(got)
}

// explain keeps the kind of a transport's error, not its addresses.
func explain(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset"
	}
	return err.Error()
}

// stray looks for what should not be on a call's stream: a second answer, progress of others,
// progress behind the answer.
func (c *call) stray(got answer) string {
	switch {
	case len(got.after) > 0 && got.after[0].isResponse():
		return "answered twice"
	case len(got.after) > 0:
		return got.after[0].Method + " after the response"
	}
	for _, f := range got.before {
		if f.Method != "notifications/progress" {
			continue
		}
		p := f.read()
		if string(p.ProgressToken) != c.token {
			return fmt.Sprintf("progress with token %s, asked with %s", p.ProgressToken, c.token)
		}
		if p.Message != c.nonce {
			return fmt.Sprintf("progress of %s, not of %s", p.Message, c.nonce)
		}
	}
	return ""
}

func (c *call) judgeResult(got answer) (verdict, string) {
	text := textOf(got.frame)
	if err := json.Unmarshal([]byte(text), &c.echo); err != nil {
		if c.tool == "big" && strings.HasPrefix(text, c.nonce+" ") && strings.HasSuffix(text, " "+c.nonce) {
			return ok, ""
		}
		return corrupt, fmt.Sprintf("no echo: %.80q", got.Result)
	}
	switch {
	case c.echo.Nonce != c.nonce:
		return corrupt, fmt.Sprintf("nonce %s, want %s", c.echo.Nonce, c.nonce)
	case c.echo.Tenant != c.tenant:
		return corrupt, fmt.Sprintf("tenant %s, want %s", c.echo.Tenant, c.tenant)
	case c.echo.Server != c.server:
		return corrupt, fmt.Sprintf("server %s, want %s", c.echo.Server, c.server)
	}
	return ok, ""
}

// wrong is an error as a client reads it.
type wrong struct {
	Code    json.Number `json:"code"`
	Message *string     `json:"message"`
	Data    *struct {
		Reason string `json:"reason"`
	} `json:"data"`
}

// internals are what no client should read of a gateway.
var internals = regexp.MustCompile(`(^|[^A-Za-z0-9:/.])/(tmp|home|root|work|usr|var|proc|etc|opt|dev)/` + // paths
	`|\d+\.\d+\.\d+\.\d+:\d+|\[::1?\]:\d+` + // addresses
	`|goroutine \d|\.go:\d+|0x[0-9a-f]{6,}|runtime error|panic:` + // stacks
	`|dial tcp|broken pipe|fork/exec|file already closed|signal: killed`) // the words of the runtime

const maxError = 4 << 10

// judgeError holds an error to its form: right id, whole code, a reason, short, no internals.
func (c *call) judgeError(got answer) (verdict, string) {
	var e wrong
	if err := json.Unmarshal(got.Error, &e); err != nil {
		return malformed, "no error object: " + err.Error()
	}
	_, fraction := e.Code.Int64()
	switch {
	case string(got.ID) != c.id:
		return malformed, fmt.Sprintf("an error with id %s, asked with %s: %.200s", got.ID, c.id, got.Error)
	case fraction != nil:
		return malformed, "code " + e.Code.String()
	case e.Message == nil:
		return malformed, "no message"
	case len(got.Error) > maxError:
		return malformed, fmt.Sprintf("an error of %d bytes", len(got.Error))
	case !utf8.Valid(got.Error):
		return malformed, "not UTF-8"
	case internals.Match(got.Error):
		return malformed, "shows internals: " + string(internals.Find(got.Error)) + " in " + string(got.Error)
	case e.Data == nil || e.Data.Reason == "":
		return malformed, "no data.reason: " + string(got.Error)
	}
	return failed, e.Data.Reason
}
