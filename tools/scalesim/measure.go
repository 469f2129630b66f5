package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/testkit/cputime"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/toolcalls"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// measureCosts measures what a gateway in this process costs: calls through it, less the same calls without it. Originals stay in
// memory, so that no engine is measured.
func measureCosts(ctx context.Context) (c Costs, err error) {
	upstream, err := serveLoopback(ctx, measuredUpstream())
	if err != nil {
		return c, err
	}
	defer upstream.stop()
	g, err := startMeasuredGateway(ctx, upstream.address, "")
	if err != nil {
		return c, err
	}
	defer g.stop()
	// Nothing is cut here.
	whole, err := startMeasuredGateway(ctx, upstream.address, "[masking]\nmax_chars = 100000000\n")
	if err != nil {
		return c, err
	}
	defer whole.stop()

	caller, err := toolcalls.Connect(ctx, toolcalls.Options{Address: g.address, Tool: "tools::read"})
	if err != nil {
		return c, err
	}
	defer func() { _ = caller.Close() }()
	uncut, err := toolcalls.Connect(ctx, toolcalls.Options{Address: whole.address, Tool: "tools::read"})
	if err != nil {
		return c, err
	}
	defer func() { _ = uncut.Close() }()
	direct, err := toolcalls.Connect(ctx, toolcalls.Options{Address: upstream.address})
	if err != nil {
		return c, err
	}
	defer func() { _ = direct.Close() }()
	for _, s := range []struct {
		cost          *time.Duration
		caller        *toolcalls.Caller
		kind, without toolcalls.Kind
		calls         int
	}{
		{&c.Call, caller, toolcalls.Kind{Bytes: 200}, toolcalls.Kind{Bytes: 200}, 400},
		{&c.LargeCall, uncut, toolcalls.Kind{Bytes: 1 << 20}, toolcalls.Kind{Bytes: 1 << 20}, 50},
		{&c.Keep, caller, toolcalls.Kind{Bytes: 8 << 10, Fresh: true}, toolcalls.Kind{Bytes: 8 << 10, Fresh: true}, 200},
		{&c.ReadBack, caller, toolcalls.Kind{Read: true}, toolcalls.Kind{Bytes: 200}, 200},
		{&c.LargeKeep, caller, toolcalls.Kind{Bytes: 1 << 20, Fresh: true}, toolcalls.Kind{Bytes: 1 << 20, Fresh: true}, 30},
	} {
		with, err1 := perCall(ctx, s.caller, s.kind, s.calls)
		without, err2 := perCall(ctx, direct, s.without, s.calls)
		if err := errors.Join(err1, err2); err != nil {
			return c, err
		}
		*s.cost = with - without
	}
	if err := countStoreWork(ctx, &c); err != nil {
		return c, err
	}
	if _, err := exec.LookPath("redis-server"); err == nil {
		if err := measureRedis(ctx, &c); err != nil {
			return c, err
		}
	} else if os.Getenv("CI") != "" {
		return c, err
	}
	return c, measureModel(ctx, g, upstream.address, &c)
}

// measuredUpstream is an MCP server and a model provider whose replies cost little.
func measuredUpstream() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", toolcalls.Server(toolcalls.Text()))
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","model":"m-1","choices":[{"message":{"role":"assistant","content":"ok"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	})
	return mux
}

type loopback struct {
	address string
	stop    func()
}

func serveLoopback(ctx context.Context, handler http.Handler) (*loopback, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(ln) }()
	return &loopback{ln.Addr().String(), func() { _ = server.Close(); <-done }}, nil
}

// measuredGateway is a gateway in this process.
type measuredGateway struct {
	*app.App
	address string
	stop    func()
}

const measuredConfig = `listen = "127.0.0.1:0"
data_dir = %[1]q
rate_limit_per_minute = 60000000
%[3]s
[admin]
listen = ""
[state]
driver = "memory"
[[servers]]
id = "tools"
url = "http://%[2]s/mcp"
[[providers]]
name = "provider"
kind = "openai"
base_url = "http://%[2]s/v1"
cache = { write = 1.0, read = 0.5 }
`

func startMeasuredGateway(ctx context.Context, upstream, settings string) (_ *measuredGateway, err error) {
	dir, err := os.MkdirTemp("", "ctxgate-scalesim-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	file := filepath.Join(dir, "ctxgate.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, measuredConfig, dir, upstream, settings), 0o600); err != nil {
		return nil, err
	}
	loaded, problems := config.Load(file, config.Env{"CTXGATE_MCP_PRUNER_LISTEN="})
	if problems == nil {
		problems = loaded.ResolveSecrets(nil)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	slog.SetDefault(app.NewLogger(io.Discard, loaded.Log)) // its lines cost what they cost
	ctx, cancel := context.WithCancel(ctx)
	a, err := app.New(ctx, loaded.Config, app.Options{Version: "scalesim"})
	if err != nil {
		cancel()
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return &measuredGateway{App: a, address: a.MainAddress(), stop: func() {
		cancel()
		<-done
		_ = os.RemoveAll(dir)
	}}, nil
}

const measureTries = 3

// perCall is the processor time of this process for one call.
func perCall(ctx context.Context, caller *toolcalls.Caller, kind toolcalls.Kind, calls int) (time.Duration, error) {
	var failure error
	total := cputime.Least(measureTries, 0, func() {
		if _, err := toolcalls.Run(ctx, []*toolcalls.Caller{caller}, calls, kind); err != nil {
			failure = err
		}
	})
	return total / time.Duration(calls), failure
}

// measureModel replays short and long conversations.
func measureModel(ctx context.Context, g *measuredGateway, upstream string, c *Costs) error {
	items, stored, err := g.storeSize()
	if err != nil {
		return err
	}
	var short, long modelLoad
	turns := 0
	for i, t := range trajectories.Synthetic() {
		load := &long
		if len(t.Turns) < 20 {
			load = &short
		}
		if i%2 == 0 || load == &short { // half of the long ones are enough
			load.talks = append(load.talks, t)
			turns += len(t.Turns) * measureTries
		}
	}
	for _, load := range []*modelLoad{&short, &long} {
		if err := load.replay(ctx, g.address, upstream); err != nil {
			return err
		}
	}
	c.ShortModel, c.LongModel = short.perRequest(), long.perRequest()
	if err := errors.Join(short.checkSize(shortModelBytes), long.checkSize(longModelBytes)); err != nil {
		return err
	}
	items2, stored2, err := g.storeSize()
	if err != nil {
		return err
	}
	if err := long.measureAgain(ctx, g, c); err != nil {
		return err
	}
	originals := float64(items2-items) / c.KeptItems
	c.MaskedPerTurn = originals / float64(turns)
	c.MaskedBytes = float64(stored2-stored) / originals
	return nil
}

// modelLoad is a set of conversations and what their requests cost.
type modelLoad struct {
	talks    []trajectories.Trajectory
	requests int
	bytes    int64
	cost     time.Duration
}

func (l *modelLoad) perRequest() time.Duration { return l.cost / time.Duration(max(1, l.requests)) }

// checkSize compares the mean size of the requests with the one that costs.go has.
func (l *modelLoad) checkSize(inUse float64) error {
	if mean := float64(l.bytes) / float64(max(1, l.requests)); mean > inUse*countTolerance || mean < inUse/countTolerance {
		return fmt.Errorf("model requests have %.0f bytes, and costs.go says %.0f", mean, inUse)
	}
	return nil
}

// replay sends the conversations through the gateway and directly, each time with other texts.
func (l *modelLoad) replay(ctx context.Context, through, direct string) error {
	var failure error
	replayTo := func(address string) time.Duration {
		run := 0
		return cputime.Least(measureTries, 0, func() {
			run++
			count := &countingTransport{}
			for _, t := range l.talks {
				t.Task = fmt.Sprintf("%s, run %d", t.Task, run)
				player := trajectories.Replayer{URL: "http://" + address, Shape: fakeprovider.Chat, Client: &http.Client{Transport: count}}
				if _, err := player.Run(ctx, withStamp(t, run)); err != nil {
					failure = err
				}
			}
			count.CloseIdleConnections()
			l.requests, l.bytes = count.requests, count.bytes
		})
	}
	l.cost = replayTo(through) - replayTo(direct)
	return failure
}

// measureAgain sends only the last request of the conversations, first with texts that the gateway does not have and then again.
func (l *modelLoad) measureAgain(ctx context.Context, g *measuredGateway, c *Costs) error {
	var bodies [][]byte
	for _, t := range l.talks {
		rec := &lastBody{}
		player := trajectories.Replayer{URL: "http://127.0.0.1", Shape: fakeprovider.Chat, Client: &http.Client{Transport: rec}}
		if _, err := player.Run(ctx, withStamp(t, stampOfAgain)); err != nil {
			return err
		}
		bodies = append(bodies, rec.body)
	}
	var failure error
	run := 0
	sendAll := func(isNew bool) {
		for _, body := range bodies {
			if isNew {
				run++
			}
			stamped := bytes.ReplaceAll(body, fmt.Appendf(nil, "run %d ", stampOfAgain), fmt.Appendf(nil, "run %d ", stampOfAgain+run))
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.address+"/v1/chat/completions", bytes.NewReader(stamped))
			if err == nil {
				req.Header.Set("Content-Type", "application/json")
				var resp *http.Response
				if resp, err = http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
			failure = errors.Join(failure, err)
		}
	}
	before, _, err := g.storeSize()
	if err != nil {
		return err
	}
	fresh := cputime.Least(measureTries, 0, func() { sendAll(true) })
	after, _, err := g.storeSize()
	if err != nil {
		return err
	}
	again := cputime.Least(measureTries, 0, func() { sendAll(false) })
	originals := float64(after-before) / c.KeptItems / measureTries
	c.MaskAgain = time.Duration(float64(fresh-again) / originals)
	return failure
}

const stampOfAgain = 1000

// lastBody remembers the last request and replies with nothing.
type lastBody struct{ body []byte }

func (r *lastBody) RoundTrip(req *http.Request) (*http.Response, error) {
	var err error
	r.body, err = io.ReadAll(req.Body)
	const reply = `{"content":[],"choices":[{"message":{"content":"ok"}}],"output":[],"usage":{}}`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(reply)), Request: req}, err
}

// withStamp is a trajectory with other results in each run.
func withStamp(t trajectories.Trajectory, run int) trajectories.Trajectory {
	turns := make([]trajectories.Turn, len(t.Turns))
	for i, turn := range t.Turns {
		uses := make([]trajectories.ToolUse, len(turn.ToolUses))
		for k, use := range turn.ToolUses {
			use.Result = fmt.Sprintf("run %d %s", run, use.Result)
			uses[k] = use
		}
		turn.ToolUses = uses
		turns[i] = turn
	}
	t.Turns = turns
	return t
}

// countingTransport counts what it sends.
type countingTransport struct {
	http.Transport
	requests int
	bytes    int64
}

func (c *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests++
	c.bytes += r.ContentLength
	return c.Transport.RoundTrip(r)
}

// storeSize is what the gateway has stored, as its metrics say.
func (g *measuredGateway) storeSize() (items, stored int64, err error) {
	w := httptest.NewRecorder()
	g.AdminHandler().ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil))
	lines := bufio.NewScanner(w.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		f, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "ctxgate_store_items":
			items = int64(f)
		case "ctxgate_store_bytes":
			stored = int64(f)
		}
	}
	if w.Code != http.StatusOK {
		return 0, 0, fmt.Errorf("metrics: status %d", w.Code)
	}
	return items, stored, lines.Err()
}
