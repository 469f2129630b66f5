package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// conversationSet is a set of conversations that grow turn by turn, as agents send them.
type conversationSet struct {
	name          string
	path          string
	conversations [][][]byte // the requests of each conversation, in order
}

// stamp is part of every conversation and replaced by the number of the run, so that no run repeats an
// earlier one.
const stamp = "stamp-00000000"

// growingPolicies are the settings under which gateways are compared.
var growingPolicies = []struct{ name, settings string }{
	{"auto", "[observation_masking.schema1]\nadvance = \"auto\"\n"},
	{"turn", "[observation_masking.schema1]\nadvance = \"turn\"\n"},
	{"mask-new", "[observation_masking.schema1]\nadvance = \"auto\"\n[observation_masking.birth]\nreduce = \"mask\"\nmax_chars = 4000\nhead_chars = 1000\ntail_chars = 1000\n"},
	{"prune-new", "[observation_masking.schema1]\nadvance = \"auto\"\n[observation_masking.birth]\nreduce = \"prune\"\nmax_chars = 4000\n"},
}

// compareGrowing measures the processor time of the gateway per request in growing conversations, for the
// gateway of this repository and for others given as NAME=BINARY.
func compareGrowing(ctx context.Context, args []string) (err error) {
	const rounds = 5
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: provider(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	defer func() { _ = server.Close() }()
	sets, err := growingSets(ctx)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.Contains(a, "=") })
	args = slices.DeleteFunc(args, func(a string) bool { return !strings.Contains(a, "=") })
	for _, policy := range growingPolicies {
		if len(chosen) > 0 && !slices.Contains(chosen, policy.name) {
			continue
		}
		if err := comparePolicy(ctx, ln.Addr().String(), policy.name, policy.settings, args, sets, rounds); err != nil {
			return err
		}
	}
	return nil
}

func comparePolicy(ctx context.Context, provider, name, settings string, args []string, sets []conversationSet, rounds int) (err error) {
	h, err := newProxySet()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	binary, err := gateway.Build(h.dir)
	if err != nil {
		return err
	}
	for _, arg := range append([]string{"this=" + binary}, args...) {
		label, file, ok := strings.Cut(arg, "=")
		if !ok {
			return errUsage
		}
		if err := h.startGateway(ctx, label, file, provider, settings); err != nil {
			return err
		}
	}
	for _, set := range sets {
		costs := make([][]time.Duration, len(h.proxies))
		for round := range rounds + 1 { // the first warms up
			for i, d := range h.proxies {
				cost, err := set.sendThrough(ctx, d, fmt.Sprintf("stamp-%04d%04d", round, i))
				if err != nil {
					return err
				}
				if round > 0 {
					costs[i] = append(costs[i], cost)
				}
			}
		}
		fmt.Printf("\n%s; %s (%d rounds): processor time for a request\n", set.name, name, rounds)
		for i, d := range h.proxies {
			ratio := median(costs[i], func(round int, c time.Duration) float64 { return float64(c) / float64(costs[0][round]) })
			fmt.Printf("  %-20s median %6.3f ms   least %6.3f ms   %5.2f × %s\n", d.name,
				median(costs[i], func(_ int, c time.Duration) float64 { return ms(c) }), ms(slices.Min(costs[i])), ratio, h.proxies[0].name)
		}
	}
	return nil
}

// sendThrough sends all conversations through a gateway and returns the processor time per request.
func (s conversationSet) sendThrough(ctx context.Context, d *proxy, number string) (time.Duration, error) {
	var next, requests atomic.Int64
	failures := make([]error, clients)
	before := d.cpuTime()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			a, err := dial(ctx, d.addr)
			if err != nil {
				failures[c] = err
				return
			}
			defer func() { _ = a.conn.Close() }()
			for {
				at := int(next.Add(1)) - 1
				if at >= len(s.conversations) {
					return
				}
				for _, body := range s.conversations[at] {
					if _, err := a.post(s.path, bytes.ReplaceAll(body, []byte(stamp), []byte(number))); err != nil {
						failures[c] = fmt.Errorf("through %s: %w", d.name, err)
						return
					}
					requests.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return (d.cpuTime() - before) / time.Duration(max(1, requests.Load())), errors.Join(failures...)
}

// growingSets returns agents' conversations in two wire shapes, and long ones.
func growingSets(ctx context.Context) ([]conversationSet, error) {
	var sets []conversationSet
	for _, shape := range []fakeprovider.Shape{fakeprovider.Chat, fakeprovider.Messages} {
		set := conversationSet{path: shape.Path()}
		total, largest := 0, 0
		for _, t := range trajectories.Synthetic() {
			bodies, err := recordBodies(ctx, shape, stamped(t))
			if err != nil {
				return nil, err
			}
			set.conversations = append(set.conversations, bodies)
			total, largest = total+len(bodies), max(largest, len(bodies[len(bodies)-1]))
		}
		set.name = fmt.Sprintf("%d conversations of an agent, %s, %d requests of up to %d KB", len(set.conversations), shape, total, largest/1000)
		sets = append(sets, set)
	}
	text, err := toolText()
	if err != nil {
		return nil, err
	}
	for _, long := range []struct{ count, size int }{{8, 200_000}, {2, 2_000_000}} {
		set := conversationSet{path: wireFormats["chat"].path, name: fmt.Sprintf("%d long conversations, chat, %d requests each, growing to %d KB", long.count, conversationTurns, long.size/1000)}
		for i := range long.count {
			t, err := newConversation("chat", text, long.size, fmt.Sprintf("%s-%d", stamp, i))
			if err != nil {
				return nil, err
			}
			var bodies [][]byte
			for turn := 1; turn <= conversationTurns; turn++ {
				body, tail := t.request(turn)
				bodies = append(bodies, slices.Concat(body, tail))
			}
			set.conversations = append(set.conversations, bodies)
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// stamped is a trajectory whose task, calls and results carry the stamp.
func stamped(t trajectories.Trajectory) trajectories.Trajectory {
	t.Task = stamp + " " + t.Task
	for i := range t.Turns {
		for j := range t.Turns[i].ToolUses {
			use := &t.Turns[i].ToolUses[j]
			use.ID += stamp
			use.Result = stamp + " " + use.Result
		}
	}
	return t
}

// recordBodies returns the requests that an agent sends in a conversation.
func recordBodies(ctx context.Context, shape fakeprovider.Shape, t trajectories.Trajectory) ([][]byte, error) {
	rec := &bodyRecorder{}
	_, err := trajectories.Replayer{URL: "http://127.0.0.1", Shape: shape, Client: &http.Client{Transport: rec}}.Run(ctx, t)
	return rec.bodies, err
}

// bodyRecorder records requests and replies with nothing.
type bodyRecorder struct{ bodies [][]byte }

func (r *bodyRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.bodies = append(r.bodies, body)
	const reply = `{"content":[],"choices":[{"message":{"content":"ok"}}],"output":[],"usage":{}}`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(reply)), Request: req}, nil
}
