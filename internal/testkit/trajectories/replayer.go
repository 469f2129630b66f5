package trajectories

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// Replayer sends a trajectory's requests to a base URL: a provider, or a gateway in front of one. It
// writes the JSON itself, so that no SDK can change a request.
type Replayer struct {
	// URL is the base URL, with or without a trailing /v1.
	URL   string
	Shape fakeprovider.Shape
	// Stream requests streamed replies.
	Stream bool
	// Key and Model have defaults.
	Key, Model string
	// CacheMarks says where cache breakpoints go in the messages shape.
	CacheMarks CacheMarks
	// CallIDs says that calls and results have ids in Gemini's shape, as since Gemini 3. The other shapes always
	// have them.
	CallIDs bool
	// Client sends the requests; when nil, each run has a client of its own and closes its connections.
	Client *http.Client
	// BeforeTurn is called before each request with its number, from 0.
	BeforeTurn func(turn int)
}

// CacheMarks is a client's policy for cache breakpoints.
type CacheMarks uint8

const (
	// MarkRolling marks the system prompt and the last two user messages, as coding agents do.
	MarkRolling CacheMarks = iota
	// MarkSystemOnly marks the system prompt only.
	MarkSystemOnly
	// MarkNone marks nothing.
	MarkNone
	// MarkRolling1h is MarkRolling with a TTL of one hour.
	MarkRolling1h
	// MarkLast marks the system prompt twice and the last user message, as Claude Code does.
	MarkLast
	// MarkFour is MarkLast with the user message before the last too: every mark that a request may have.
	MarkFour
)

// StatusError is a reply with a status other than 200.
type StatusError struct {
	Status int
	Body   string
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Body) }

// Run sends one request per turn and a last one, and returns the usage that the replies report. The
// requests follow the trajectory whatever the replies say, but a reply with other tool calls than the
// trajectory's is an error. After an error the bill ends early.
func (p Replayer) Run(ctx context.Context, t Trajectory) (fakeprovider.Bill, error) {
	p.Key, p.Model = cmp.Or(p.Key, "sk-test"), cmp.Or(p.Model, "model-test")
	if p.Client == nil {
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		p.Client = &http.Client{Transport: tr}
	}
	var bill fakeprovider.Bill
	d := newRequestBuilder(p, t)
	for i := 0; i <= len(t.Turns); i++ {
		if p.BeforeTurn != nil {
			p.BeforeTurn(i)
		}
		out, err := p.sendRequest(ctx, d.body())
		if err != nil {
			return bill, fmt.Errorf("%s, %s, turn %d: %w", t.Name, p.Shape, i, err)
		}
		out.Seq, out.Shape, out.Model = i, p.Shape, p.Model
		bill = append(bill, out.Usage)
		if i == len(t.Turns) {
			break
		}
		if want := t.Turns[i].reply().Calls; len(out.Calls) > 0 && !slices.Equal(out.Calls, want) {
			return bill, fmt.Errorf("%s, %s, turn %d: the model called %v, want %v", t.Name, p.Shape, i, out.Calls, want)
		}
		d.addTurn(t.Turns[i])
	}
	return bill, nil
}

func (p Replayer) sendRequest(ctx context.Context, body []byte) (fakeprovider.Reply, error) {
	url := strings.TrimSuffix(strings.TrimSuffix(p.URL, "/"), "/v1") + p.Shape.PathOf(p.Model, p.Stream)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fakeprovider.Reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.Shape == fakeprovider.Messages {
		req.Header.Set("X-Api-Key", p.Key)
		req.Header.Set("Anthropic-Version", "2023-06-01")
	} else {
		req.Header.Set("Authorization", "Bearer "+p.Key)
	}
	resp, err := p.Client.Do(req)
	if err != nil {
		return fakeprovider.Reply{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<12))
		return fakeprovider.Reply{}, &StatusError{resp.StatusCode, string(text)}
	}
	return fakeprovider.ReadReply(p.Shape, resp.Body, p.Stream)
}
