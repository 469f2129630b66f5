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

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
)

// verdict classifies the outcome of a call.
type verdict int

const (
	pending   verdict = iota
	ok                // the right reply, once
	failed            // a well-formed error
	malformed         // an error that is not well formed
	lost              // no reply
	corrupt           // another call's reply, or more than one
	unsent            // connection refused: the call was never made
)

var verdictNames = map[verdict]string{pending: "pending", ok: "ok", failed: "error", malformed: "malformed", lost: "lost", corrupt: "corrupt", unsent: "unsent"}

func (v verdict) String() string { return verdictNames[v] }

// call is a tool call and its outcome.
type call struct {
	id            string
	progressToken string
	nonce         string
	tenant        string
	server        string // also the prefix of the tool's name
	tool          string
	extraArgs     string    // more arguments as JSON members
	scheduled     time.Time // when it should be sent: waiting for a slow client counts
	ended         time.Time

	verdict verdict
	reason  string // the problem, or the error's reason
	echo    mcpserver.EchoResult
	got     mcpclient.Reply
}

func (c *call) took() time.Duration { return c.ended.Sub(c.scheduled) }

// request encodes the call.
func (c *call) request(prefix string) mcpclient.Request {
	args := fmt.Sprintf(`{"nonce":%q,"tenant":%q`, c.nonce, c.tenant)
	if c.extraArgs != "" {
		args += "," + c.extraArgs
	}
	return mcpclient.Request{ID: c.id, ProgressToken: c.progressToken, Method: "tools/call", Params: fmt.Sprintf(`{"name":%q,"arguments":%s}}`, prefix+c.tool, args)}
}

// send makes the call and judges the reply. The tool is named "server::tool".
func (c *call) send(ctx context.Context, p mcpclient.Client) { c.sendAs(ctx, p, c.server+"::") }

func (c *call) sendAs(ctx context.Context, p mcpclient.Client, prefix string) {
	if c.scheduled.IsZero() {
		c.scheduled = time.Now()
	}
	got, err := p.Call(ctx, c.request(prefix))
	c.ended = got.At
	if c.ended.IsZero() {
		c.ended = time.Now()
	}
	c.got = got
	c.verdict, c.reason = c.judge(got, err)
}

// judge classifies a reply.
func (c *call) judge(got mcpclient.Reply, err error) (verdict, string) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return unsent, "connection refused"
	case err != nil && !got.IsResponse():
		return lost, transportReason(err)
	case err != nil:
		return corrupt, err.Error()
	case string(got.ID) != c.id && got.Error == nil:
		return corrupt, fmt.Sprintf("the response has id %s, the request %s", got.ID, c.id)
	}
	if why := c.findStray(got); why != "" {
		return corrupt, why
	}
	if got.Error != nil {
		return c.judgeError(got)
	}
	return c.judgeResult(got)
}

// transportReason describes a transport error without its addresses.
func transportReason(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		return "no reply in time"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset"
	}
	return err.Error()
}

// findStray finds what must not be on a call's stream: a second response, progress of other calls, progress
// after the response.
func (c *call) findStray(got mcpclient.Reply) string {
	switch {
	case len(got.After) > 0 && got.After[0].IsResponse():
		return "two responses"
	case len(got.After) > 0:
		return got.After[0].Method + " after the response"
	}
	for _, f := range got.Notifications {
		if f.Method != "notifications/progress" {
			continue
		}
		p := f.ParseParams()
		if string(p.ProgressToken) != c.progressToken {
			return fmt.Sprintf("progress has token %s, the request %s", p.ProgressToken, c.progressToken)
		}
		if p.Message != c.nonce {
			return fmt.Sprintf("progress of %s, want %s", p.Message, c.nonce)
		}
	}
	return ""
}

func (c *call) judgeResult(got mcpclient.Reply) (verdict, string) {
	text := mcpclient.ResultText(got.Message)
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

// errorObject is a JSON-RPC error.
type errorObject struct {
	Code    json.Number `json:"code"`
	Message *string     `json:"message"`
	Data    *struct {
		Reason string `json:"reason"`
	} `json:"data"`
}

// internalDetails must not be in a gateway's errors.
var internalDetails = regexp.MustCompile(`(^|[^A-Za-z0-9:/.])/(tmp|home|root|work|usr|var|proc|etc|opt|dev)/` + // paths
	`|\d+\.\d+\.\d+\.\d+:\d+|\[::1?\]:\d+` + // addresses
	`|goroutine \d|\.go:\d+|0x[0-9a-f]{6,}|runtime error|panic:` + // stacks
	`|dial tcp|broken pipe|fork/exec|file already closed|signal: killed`) // messages of the runtime

const maxError = 4 << 10

// judgeError checks an error: right id, integer code, a reason, short, no internal details.
func (c *call) judgeError(got mcpclient.Reply) (verdict, string) {
	var e errorObject
	if err := json.Unmarshal(got.Error, &e); err != nil {
		return malformed, "no error object: " + err.Error()
	}
	_, fraction := e.Code.Int64()
	switch {
	case string(got.ID) != c.id:
		return malformed, fmt.Sprintf("the error has id %s, the request %s: %.200s", got.ID, c.id, got.Error)
	case fraction != nil:
		return malformed, "code " + e.Code.String()
	case e.Message == nil:
		return malformed, "no message"
	case len(got.Error) > maxError:
		return malformed, fmt.Sprintf("an error of %d bytes", len(got.Error))
	case !utf8.Valid(got.Error):
		return malformed, "not UTF-8"
	case internalDetails.Match(got.Error):
		return malformed, "shows internals: " + string(internalDetails.Find(got.Error)) + " in " + string(got.Error)
	case e.Data == nil || e.Data.Reason == "":
		return malformed, "no data.reason: " + string(got.Error)
	}
	return failed, e.Data.Reason
}
