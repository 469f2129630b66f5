package llmtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Player plays an agent against a base URL: the provider itself, or a gateway in front of it. It
// speaks raw HTTP, so that nothing but the shape's own JSON is between the two.
type Player struct {
	// URL is the base, with or without /v1 at its end.
	URL   string
	Shape Shape
	// Stream asks for the answers as streams.
	Stream bool
	// Key and Model have names of their own when they are empty.
	Key, Model string
	// Marks is where breakpoints for the cache are put in the shape of messages.
	Marks Marks
	// Client makes the requests; when nil, one is made for each play, which leaves nothing behind.
	Client *http.Client
	// Before is called before each request with its number, from 0: to move a clock, say.
	Before func(turn int)
}

// Marks is a habit of putting breakpoints.
type Marks uint8

const (
	// Rolling marks the system prompt and the last two messages of the user, as coding agents do.
	Rolling Marks = iota
	// Still marks the system prompt only.
	Still
	// Unmarked marks nothing.
	Unmarked
	// Hourly is Rolling with marks for an hour.
	Hourly
)

// StatusError is an answer that was not 200.
type StatusError struct {
	Status int
	Body   string
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Body) }

// Replay plays the trajectory without streaming and says what it cost by the usage that came back.
func Replay(ctx context.Context, baseURL string, shape Shape, t Trajectory) (Ledger, error) {
	return Player{URL: baseURL, Shape: shape}.Play(ctx, t)
}

// Play plays the trajectory: a request for each turn and one for the end. The conversation goes on
// as the trajectory has it; a model that calls tools but other ones than it says is an error. The
// ledger is what the answers' usage says; it ends early with an error.
func (p Player) Play(ctx context.Context, t Trajectory) (Ledger, error) {
	p.Key, p.Model = cmp.Or(p.Key, "sk-llmtest"), cmp.Or(p.Model, "model-test")
	if p.Client == nil {
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		p.Client = &http.Client{Transport: tr}
	}
	var bill Ledger
	d := newDialogue(p, t)
	for i := 0; i <= len(t.Turns); i++ {
		if p.Before != nil {
			p.Before(i)
		}
		out, err := p.ask(ctx, d.body())
		if err != nil {
			return bill, fmt.Errorf("%s, %s, turn %d: %w", t.Name, p.Shape, i, err)
		}
		out.Seq, out.Shape, out.Model = i, p.Shape, p.Model
		bill = append(bill, out.Entry)
		if i == len(t.Turns) {
			break
		}
		if want := t.Turns[i].step().Calls; len(out.calls) > 0 && !slices.Equal(out.calls, want) {
			return bill, fmt.Errorf("%s, %s, turn %d: the model called %v, not %v", t.Name, p.Shape, i, out.calls, want)
		}
		d.add(t.Turns[i])
	}
	return bill, nil
}

// outcome is what an answer said.
type outcome struct {
	Entry
	text  string
	calls []Call
}

func (p Player) ask(ctx context.Context, body []byte) (outcome, error) {
	url := strings.TrimSuffix(strings.TrimSuffix(p.URL, "/"), "/v1") + p.Shape.Path()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return outcome{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.Shape == Messages {
		req.Header.Set("X-Api-Key", p.Key)
		req.Header.Set("Anthropic-Version", "2023-06-01")
	} else {
		req.Header.Set("Authorization", "Bearer "+p.Key)
	}
	resp, err := p.Client.Do(req)
	if err != nil {
		return outcome{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<12))
		return outcome{}, &StatusError{resp.StatusCode, string(text)}
	}
	if p.Stream {
		return readStream(p.Shape, resp.Body)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return outcome{}, err
	}
	return readBody(p.Shape, raw)
}
