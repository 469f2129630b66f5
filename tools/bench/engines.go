package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/toolcalls"
)

// engine is a store and the gateway that uses it.
type engine struct {
	name     string
	settings string                                                                                        // of the gateway: the table state, and further tables
	top      string                                                                                        // of the gateway: keys before all tables
	token    string                                                                                        // that callers send
	pids     []int                                                                                         // of the engine's own processes; none if it runs in the gateway's
	counters func() (engineWork, error)                                                                    // what the engine has done so far; nil if nobody counts
	bare     func(ctx context.Context, kind callKind, c engineCost, e engineEffort) (time.Duration, error) // the engine's time for the same commands without a gateway
	close    func()

	gateway *proxy
	callers []*toolcalls.Caller
}

// engineWork is what an engine did.
type engineWork struct {
	commands int64
	bytes    int64 // received
	memory   int64 // held
	puts     int64 // into a bucket
	gets     int64 // from it
}

// callKind is one kind of call that is measured.
type callKind struct {
	name string
	toolcalls.Kind
	keeps bool // results are cut
}

const keptBytes = 8 << 10

var callKinds = []callKind{
	{name: "keeps nothing", Kind: toolcalls.Kind{Bytes: 200}},
	{name: "keeps 8 KB", Kind: toolcalls.Kind{Bytes: keptBytes, Fresh: true}, keeps: true},
	{name: "8 KB kept before", Kind: toolcalls.Kind{Bytes: keptBytes}, keeps: true},
	{name: "reads 8 KB back", Kind: toolcalls.Kind{Read: true}, keeps: true},
}

// engineCost is what calls of one kind cost, summed over the rounds.
type engineCost struct {
	calls           int
	gateway, engine time.Duration
	work            engineWork
}

func (c engineCost) perCall(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(max(1, c.calls))
}

// barRedis is the share of a call that keeps nothing that Redis may cost: its own time, and what the gateway needs more than
// with SQLite.
const barRedis = 0.15

// engineEffort is how much is measured: a smoke form for CI, and a full one.
type engineEffort struct {
	rounds, calls, callers int
	bareCommands           int // of redis-benchmark, for each command of a call
}

// compareEngines measures the processor time per call of the gateway and of each engine in interleaved rounds, and the
// engines bare.
func compareEngines(ctx context.Context, e engineEffort) (err error) {
	h, err := newProxySet()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	upstream, stop, err := serveTools(ctx)
	if err != nil {
		return err
	}
	defer stop()
	binary, err := gateway.Build(h.dir)
	if err != nil {
		return err
	}
	engines, err := openEngines(h.dir)
	defer func() {
		for _, g := range engines {
			g.closeEngine()
		}
	}()
	if err != nil {
		return err
	}
	for _, g := range engines {
		g.top = engineLimit
		if err := g.startGateway(ctx, h, binary, upstream, e.callers); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	costs, err := measureEngines(ctx, engines, e)
	if err != nil {
		return err
	}
	return printEngines(ctx, engines, costs, e)
}

// serveTools starts the MCP server that all gateways call.
func serveTools(ctx context.Context) (address string, stop func(), err error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: toolcalls.Server(toolcalls.Text()), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	return ln.Addr().String(), func() { _ = server.Close() }, nil
}

// openEngines starts the engines that are installed. On an error it returns those that were started.
func openEngines(dir string) ([]*engine, error) {
	engines := []*engine{{name: "memory", settings: "driver = \"memory\"\n"}, {name: "sqlite", settings: "driver = \"sqlite\"\n"}}
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("redis-server is not installed and not measured")
		return engines, nil //nolint:nilerr // the others are measured
	}
	for _, r := range []struct {
		name string
		mode redisserver.Mode
	}{{"redis", redisserver.Single}, {"redis 1+2", redisserver.Sentinel}} {
		g, err := openRedis(r.name, r.mode)
		if g != nil {
			engines = append(engines, g)
		}
		if err != nil {
			return engines, err
		}
	}
	g, err := openBucket(dir)
	if g != nil {
		engines = append(engines, g)
	}
	return engines, err
}

func (g *engine) closeEngine() {
	for _, c := range g.callers {
		_ = c.Close()
	}
	if g.close != nil {
		g.close()
	}
}

// engineLimit never refuses: what limits cost is counted.
const engineLimit = "rate_limit_per_minute = 60000000\n"

// engineConfig is a gateway with time for a busy machine's disk.
const engineConfig = `listen = %[1]q
data_dir = %[2]q
%[6]s
[admin]
listen = %[3]q
[[servers]]
id = "tools"
url = "http://%[4]s/mcp"
[recall]
keep_timeout = "1m"
[state]
timeout = "30s"
%[5]s
`

func (g *engine) startGateway(ctx context.Context, h *proxySet, binary, upstream string, callers int) (err error) {
	g.gateway = &proxy{name: g.name, isGateway: true}
	if g.gateway.addr, err = process.FreeAddress(); err != nil {
		return err
	}
	admin, err := process.FreeAddress()
	if err != nil {
		return err
	}
	dir := filepath.Join(h.dir, strings.ReplaceAll(g.name, " ", "-"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text := fmt.Sprintf(engineConfig, g.gateway.addr, filepath.Join(dir, "data"), admin, upstream, g.settings, g.top)
	file := filepath.Join(dir, "ctxgate.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if g.token != "" {
		if err := os.Setenv("BENCH_TOKEN", g.token); err != nil {
			return err
		}
	}
	if err := h.start(ctx, g.gateway, binary, "serve", "--config", file); err != nil {
		return err
	}
	for range callers {
		c, err := toolcalls.Connect(ctx, toolcalls.Options{Address: g.gateway.addr, Tool: "tools::read", Token: g.token})
		if err != nil {
			return err
		}
		g.callers = append(g.callers, c)
	}
	return nil
}

// measureEngines measures every kind of call with every engine in interleaved rounds.
func measureEngines(ctx context.Context, engines []*engine, e engineEffort) ([][]engineCost, error) {
	costs := make([][]engineCost, len(engines))
	for i := range costs {
		costs[i] = make([]engineCost, len(callKinds))
	}
	for round := range e.rounds + 1 { // the first warms up
		for k, kind := range callKinds {
			for i, g := range engines {
				cost, err := g.measureCalls(ctx, kind, e.calls)
				if err != nil {
					return nil, fmt.Errorf("%s, a call that %s: %w", g.name, kind.name, err)
				}
				if round > 0 {
					costs[i][k].add(cost)
				}
			}
		}
	}
	return costs, nil
}

func (c *engineCost) add(d engineCost) {
	c.calls += d.calls
	c.gateway += d.gateway
	c.engine += d.engine
	c.work.commands += d.work.commands
	c.work.bytes += d.work.bytes
	c.work.memory += d.work.memory
	c.work.puts += d.work.puts
	c.work.gets += d.work.gets
}

func (g *engine) measureCalls(ctx context.Context, kind callKind, calls int) (cost engineCost, err error) {
	before, gatewayBefore, engineBefore := engineWork{}, g.gateway.cpuTime(), g.ownTime()
	if g.counters != nil {
		if before, err = g.counters(); err != nil {
			return cost, err
		}
	}
	cuts, err := toolcalls.Run(ctx, g.callers, calls, kind.Kind)
	if err != nil {
		return cost, err
	}
	if kind.keeps && cuts < calls*9/10 || !kind.keeps && cuts > 0 {
		return cost, fmt.Errorf("%d of %d results were cut; the gateway warns\n%s", cuts, calls, warnings(g.gateway.process.Output()))
	}
	cost = engineCost{calls: calls, gateway: g.gateway.cpuTime() - gatewayBefore, engine: g.ownTime() - engineBefore}
	if g.counters != nil {
		after, err := g.counters()
		if err != nil {
			return cost, err
		}
		cost.work = engineWork{after.commands - before.commands, after.bytes - before.bytes, after.memory - before.memory, after.puts - before.puts, after.gets - before.gets}
	}
	return cost, nil
}

// warnings are the last lines of a log that are no information.
func warnings(log string) string {
	lines := slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool { return strings.Contains(line, "level=INFO") })
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// ownTime is the processor time of the engine's own processes so far.
func (g *engine) ownTime() time.Duration {
	var total time.Duration
	for _, pid := range g.pids {
		own, _ := process.CPUTime(pid)
		total += own
	}
	return total
}

// printEngines prints the table, and fails if Redis costs too much of a call that keeps nothing.
func printEngines(ctx context.Context, engines []*engine, costs [][]engineCost, e engineEffort) error {
	fmt.Printf("processor time per call, µs (%d callers, %d rounds of %d calls, interleaved)\n", e.callers, e.rounds, e.calls)
	fmt.Printf("%-20s %-18s %8s %8s %8s %10s %10s %10s %8s\n", "a call that", "engine", "gateway", "engine", "together", "commands", "bytes in", "memory", "bare")
	var base, redis, ofRedis float64
	for k, kind := range callKinds {
		for i, g := range engines {
			c := costs[i][k]
			together := c.perCall(c.gateway + c.engine)
			work, bare := [3]string{"–", "–", "–"}, "–"
			if g.counters != nil {
				n := float64(c.calls)
				work = [3]string{fmt.Sprintf("%.2f", float64(c.work.commands)/n), fmt.Sprintf("%.0f", float64(c.work.bytes)/n), fmt.Sprintf("%.0f", float64(c.work.memory)/n)}
			}
			if g.bare != nil {
				took, err := g.bare(ctx, kind, c, e)
				if err != nil {
					return err
				}
				bare = fmt.Sprintf("%.1f", float64(took.Nanoseconds())/1000)
			}
			fmt.Printf("%-20s %-18s %8.1f %8.1f %8.1f %10s %10s %10s %8s\n", kind.name, g.name, c.perCall(c.gateway), c.perCall(c.engine), together, work[0], work[1], work[2], bare)
			if c.work.puts+c.work.gets > 0 {
				fmt.Printf("%39s %.1f PUT and %.1f GET for 1,000 calls\n", "", 1000*float64(c.work.puts)/float64(c.calls), 1000*float64(c.work.gets)/float64(c.calls))
			}
			switch {
			case k == 0 && g.name == "sqlite":
				base = c.perCall(c.gateway)
			case k == 0 && g.name == "redis":
				redis, ofRedis = together, c.perCall(c.engine)+max(0, c.perCall(c.gateway)-base)
			}
		}
	}
	if redis == 0 {
		_, err := io.WriteString(os.Stdout, "no Redis was measured\n")
		return err
	}
	share := ofRedis / redis
	fmt.Printf("Redis is %.1f %% of a call that keeps nothing (bar %.0f %%)\n", 100*share, 100*barRedis)
	if share > barRedis {
		return errMissed
	}
	return nil
}
