package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/daemon"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/launch"
	"github.com/ctxgate/ctxgate/setup"
	"github.com/ctxgate/ctxgate/upstream"
)

const profileAgents = "agents"

// agentRun is one run of an agent.
type agentRun struct {
	flags *runFlags
	agent launch.Agent
	host  launch.Host
	args  []string
	dir   string // for temporary files
	model launch.Model
	notes []string
}

// runGateway is the gateway of one `ctxgate run`: the one in the background, or one in this process.
type runGateway struct {
	wiring launch.Wiring
	get    func(ctx context.Context, path string) string // a page of the operator's API; "" if it cannot be had
	close  func()
}

// openGateway returns the gateway of the user's config file if it serves this agent as it should, or else one in this
// process.
func (r *agentRun) openGateway(ctx context.Context) (*runGateway, error) {
	env := config.Env(r.host.Env)
	path, err := config.FindFile(r.flags.config, env)
	if errors.Is(err, config.ErrNoFile) {
		return r.importServers(ctx)
	}
	if err != nil {
		return nil, err
	}
	loaded, err := loadConfig(path, false, tokenVariables...)
	if err != nil {
		return nil, err
	}
	why := r.whyNotShared(loaded)
	if why == "" {
		gate, why2, err := r.useBackground(ctx, path, loaded)
		if gate != nil || err != nil {
			return gate, err
		}
		why = why2
	}
	if loaded, err = loadRunConfig(path, env); err != nil {
		return nil, err
	}
	r.notes = append(r.notes, "this run has a gateway of its own: "+why)
	return r.serveOwn(ctx, loaded.Config, launch.Wiring{})
}

// whyNotShared says why the gateway of a config file does not do for the agent; "" if it does.
func (r *agentRun) whyNotShared(loaded config.Loaded) string {
	file := loaded.File.Path
	switch {
	case loaded.Profile != profileAgents:
		return file + ` has the profile "` + loaded.Profile + `"`
	case loaded.Front.Listen == "":
		return file + " opens no listener"
	}
	for _, kind := range r.model.Kinds {
		url := r.model.Upstream[kind]
		serves := func(p chat.Provider) bool {
			return string(p.Kind) == kind && (url == "" || trimBase(p.BaseURL.Reveal()) == trimBase(url) || trimBase(url) == trimBase("http://"+loaded.Front.Listen))
		}
		if !slices.ContainsFunc(loaded.Chat.Providers, serves) {
			if url != "" {
				return file + " has no provider for the address that " + r.agent.Title + " is set to"
			}
			return file + " has no provider of the kind " + kind
		}
	}
	return ""
}

// trimBase is a base URL as it is compared: with and without /v1 it means the same.
func trimBase(url string) string {
	return strings.TrimSuffix(strings.TrimRight(url, "/"), "/v1")
}

// useBackground uses the gateway of the config file, and starts it in the background if none runs.
func (r *agentRun) useBackground(ctx context.Context, path string, loaded config.Loaded) (gate *runGateway, why string, err error) {
	program, err := gatewayOfFile(path)
	if err != nil {
		return nil, err.Error(), nil //nolint:nilerr // a gateway of its own does not need the socket
	}
	running, err := program.Ensure(ctx, r.agent.ID)
	if err != nil {
		return nil, "", err
	}
	if running.Profile != profileAgents || running.Listen == "" {
		return nil, "the one that runs (pid " + strconv.Itoa(running.PID) + ") has another profile, or no listener", nil
	}
	own, err := ownPath()
	if err != nil {
		return nil, "", err
	}
	env := map[string]string{} // by which the bridge finds the same gateway
	for _, name := range []string{"XDG_RUNTIME_DIR", "XDG_DATA_HOME"} {
		if value, ok := r.host.Lookup(name); ok {
			env[name] = value
		}
	}
	client := daemon.HTTPClient(program.Endpoint, version())
	url := "http://" + running.Listen
	stop := keepAlive(ctx, url+"/healthz", loaded.Background.IdleTimeout.D(), func() { _, _ = program.Ensure(ctx, r.agent.ID) })
	gate = &runGateway{
		wiring: launch.Wiring{
			URL: url, Command: []string{own, "stdio", "--client", r.agent.ID, "--config", program.Endpoint.Config}, Env: env, Token: loaded.Auth.Token.Reveal(), Dir: r.dir,
		},
		get:   func(ctx context.Context, path string) string { return getText(ctx, client, "http://gateway"+path) },
		close: func() { stop(); client.CloseIdleConnections() },
	}
	return gate, "", nil
}

// keepAlive keeps a gateway in the background from ending while an agent thinks, and calls lost when it does not answer.
func keepAlive(ctx context.Context, url string, idle time.Duration, lost func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	pause := time.Minute
	if idle > 0 {
		pause = min(pause, max(idle/3, 100*time.Millisecond))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(pause)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if getText(ctx, http.DefaultClient, url) == "" && ctx.Err() == nil {
					lost()
				}
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// getText is the body of a page; "" if it cannot be had.
func getText(ctx context.Context, client *http.Client, url string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return ""
	}
	reply, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer reply.Body.Close()
	var b strings.Builder
	lines := bufio.NewScanner(http.MaxBytesReader(nil, reply.Body, 16<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		b.WriteString(lines.Text() + "\n")
	}
	return b.String()
}

// loadRunConfig loads a config file, or none, with the profile of agents.
func loadRunConfig(path string, env config.Env) (config.Loaded, error) {
	env = append(slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "CTXGATE_PROFILE=") }), "CTXGATE_PROFILE="+profileAgents)
	loaded, problems := config.Load(path, env, tokenVariables...)
	if len(problems) == 0 {
		problems = loaded.TolerateServers(loaded.ResolveSecrets(env))
	}
	return loaded, problems.Err()
}

// importServers serves the MCP servers that the agent itself has configured, from this process. What setup would write
// goes into the run's temporary directory.
func (r *agentRun) importServers(ctx context.Context) (*runGateway, error) {
	env := config.Env(r.host.Env)
	own, err := ownPath()
	if err != nil {
		return nil, err
	}
	loaded, err := loadRunConfig("", env)
	if err != nil {
		return nil, err
	}
	cfg := loaded.Config
	wiring := launch.Wiring{IsOnly: true}
	if r.agent.KeepsServers {
		return r.serveOwn(ctx, cfg, launch.Wiring{})
	}
	for _, isProject := range []bool{true, false} { // a project's entry wins over the user's of the same name
		dir := filepath.Join(r.dir, "user")
		if isProject {
			dir = filepath.Join(r.dir, "project")
		}
		plan, err := setup.NewPlan(setup.Options{
			GOOS: r.host.GOOS, Home: r.host.Home, Cwd: r.host.Cwd, Env: env, Clients: []string{r.agent.ID}, Project: isProject,
			Config: filepath.Join(dir, "ctxgate.toml"), Secrets: filepath.Join(dir, "secrets"), Program: own, Time: time.Now(),
		})
		if err != nil {
			return nil, fmt.Errorf("reading the MCP servers of %s: %w", r.agent.Title, err)
		}
		for _, f := range plan.Files {
			if f.Err != nil {
				wiring.IsOnly = false
				r.notes = append(r.notes, fmt.Sprintf("%s cannot be read, so its MCP servers stay with %s: %s", f.Path, r.agent.Title, f.Err))
			}
			for _, s := range f.Servers {
				switch {
				case s.ID != "":
					wiring.Replace = append(wiring.Replace, s.Name)
				case !s.Gateway:
					wiring.IsOnly = false
				}
			}
		}
		servers, err := loadPlanned(plan, dir, env)
		if err != nil {
			return nil, err
		}
		for _, s := range servers {
			if !slices.ContainsFunc(cfg.Upstream.Servers, func(known upstream.ServerConfig) bool { return known.ID == s.ID }) {
				cfg.Upstream.Servers = append(cfg.Upstream.Servers, s)
			}
		}
	}
	if n := len(cfg.Upstream.Servers); n > 0 {
		r.notes = append(r.notes, fmt.Sprintf("no config file, so this run serves the MCP servers of %s: %s", r.agent.Title, serverIDs(cfg)))
	}
	return r.serveOwn(ctx, cfg, wiring)
}

// loadPlanned writes the files that a plan has below dir, and loads the servers of its configuration.
func loadPlanned(plan *setup.Plan, dir string, env config.Env) ([]upstream.ServerConfig, error) {
	file := ""
	for _, e := range plan.Edits {
		if !strings.HasPrefix(e.Path, dir+string(filepath.Separator)) || e.After == nil {
			continue // the agent's own file stays as it is
		}
		if err := os.MkdirAll(filepath.Dir(e.Path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(e.Path, e.After, 0o600); err != nil {
			return nil, err
		}
		if e.Path == plan.Config {
			file = e.Path
		}
	}
	if file == "" {
		return nil, nil
	}
	loaded, err := loadRunConfig(file, env)
	return loaded.Upstream.Servers, err
}

func serverIDs(cfg config.Config) string {
	ids := make([]string, len(cfg.Upstream.Servers))
	for i, s := range cfg.Upstream.Servers {
		ids[i] = s.ID
	}
	return strings.Join(ids, ", ")
}

// serveOwn serves a configuration from this process, on a free port.
func (r *agentRun) serveOwn(ctx context.Context, cfg config.Config, wiring launch.Wiring) (*runGateway, error) {
	cfg.Front.Listen, cfg.Admin.Listen, cfg.Pruner.Listen = "127.0.0.1:0", "", ""
	cfg.Chat.Providers = r.providers(cfg.Chat.Providers)
	log, err := openRunLog(r.flags.log)
	if err != nil {
		return nil, err
	}
	slog.SetDefault(app.NewLogger(log, cfg.Log))
	opts := appOptions()
	_, opts.Env = extractToken(opts.Env)
	ctx, cancel := context.WithCancel(ctx)
	a, err := app.New(ctx, cfg, opts)
	if err != nil {
		cancel()
		return nil, errors.Join(err, log.Close())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := a.Run(ctx); err != nil {
			slog.Error("the gateway ended", "error", err)
		}
	}()
	wiring.URL, wiring.Token, wiring.Dir = "http://"+a.MainAddress(), cfg.Auth.Token.Reveal(), r.dir
	wiring.MCPURL = wiring.URL + "/mcp?client=" + r.agent.ID
	return &runGateway{
		wiring: wiring,
		get: func(ctx context.Context, path string) string {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway"+path, http.NoBody)
			if err != nil {
				return ""
			}
			reply := &textReply{header: http.Header{}}
			a.AdminHandler().ServeHTTP(reply, req)
			return reply.String()
		},
		close: func() {
			cancel()
			<-ended
			_ = log.Close()
		},
	}, nil
}

// providers adds to the configured providers the addresses that the user has set for the agent, and the default ones of
// kinds that are missing.
func (r *agentRun) providers(configured []chat.Provider) []chat.Provider {
	list := slices.Clone(configured)
	for _, kind := range r.model.Kinds {
		isKind := func(p chat.Provider) bool { return string(p.Kind) == kind }
		url := r.model.Upstream[kind]
		i := slices.IndexFunc(list, isKind)
		if i < 0 {
			defaults := config.DefaultFor(profileAgents).Chat.Providers
			list = append(list, defaults[slices.IndexFunc(defaults, isKind)])
			i = len(list) - 1
		}
		if url != "" {
			p := list[i]
			p.Name, p.BaseURL, p.APIKey, p.Models, p.Headers, p.Fallback = r.agent.ID+"-"+kind, secret.URL(url), secret.Text{}, nil, nil, nil
			list = append([]chat.Provider{p}, list...)
		}
	}
	return list
}
