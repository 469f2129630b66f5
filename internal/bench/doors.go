package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// door is one way to the provider: a process of its own, or none.
type door struct {
	name string
	addr string
	own  bool      // it is ctxgate's
	slow bool      // it is given less to do
	cmd  *exec.Cmd // nil: the way leads straight to the provider
}

const bareName = "bare proxy"

// house is every door in a run, and the folder they write to.
type house struct {
	doors []*door
	dir   string
}

// openHouse starts every door to a provider: none, the standard library's, nginx where it is
// installed, and the gateway's, whose window moves when that pays and at every turn.
func openHouse(ctx context.Context, provider string) (h *house, err error) {
	h = &house{}
	if h.dir, err = os.MkdirTemp("", "ctxgate-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	h.doors = append(h.doors, &door{name: "direct", addr: provider})
	if err := h.openBare(ctx, provider); err != nil {
		return h, err
	}
	if err := h.openNginx(ctx, provider); err != nil {
		return h, err
	}
	binary := filepath.Join(h.dir, "ctxgate")
	if out, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "./cmd/ctxgate").CombinedOutput(); err != nil {
		return h, fmt.Errorf("building ctxgate: %w\n%s", err, out)
	}
	for _, advance := range []string{"auto", "turn"} {
		if err := h.openGateway(ctx, binary, provider, advance); err != nil {
			return h, err
		}
	}
	return h, nil
}

// close ends every process and removes what they wrote.
func (h *house) close() error {
	for _, d := range h.doors {
		if d.cmd != nil && d.cmd.Process != nil {
			_ = d.cmd.Process.Signal(os.Interrupt)
		}
	}
	for _, d := range h.doors {
		if d.cmd == nil || d.cmd.Process == nil {
			continue
		}
		hurry := time.AfterFunc(10*time.Second, func() { _ = d.cmd.Process.Kill() })
		_ = d.cmd.Wait() // it was told to end
		hurry.Stop()
	}
	return os.RemoveAll(h.dir)
}

// start runs a door's process until something listens where it should.
func (h *house) start(ctx context.Context, d *door, name string, args ...string) error {
	d.cmd = exec.CommandContext(ctx, name, args...)
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(os.Interrupt) } // nginx has children to end
	d.cmd.WaitDelay = 10 * time.Second
	// One scheduler for all of them, whatever the machine says.
	d.cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(runtime.GOMAXPROCS(0)), "HOME="+h.dir)
	// Not beside the configuration, which is watched: every line would wake who watches it.
	logs := filepath.Join(h.dir, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return err
	}
	said, err := os.Create(filepath.Join(logs, strings.ReplaceAll(d.name, " ", "-")+".log"))
	if err != nil {
		return err
	}
	defer said.Close()
	d.cmd.Stdout, d.cmd.Stderr = said, said
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", d.name, err)
	}
	h.doors = append(h.doors, d)
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", d.addr); err == nil {
			return conn.Close()
		}
	}
	text, _ := os.ReadFile(said.Name())
	return fmt.Errorf("%s does not listen at %s:\n%s", d.name, d.addr, text)
}

func (h *house) openBare(ctx context.Context, provider string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d := &door{name: bareName}
	if d.addr, err = freeAddress(ctx); err != nil {
		return err
	}
	return h.start(ctx, d, self, "bare", d.addr, provider)
}

// serveBare is the bare proxy's process: httputil.ReverseProxy with the standard library's own
// settings, but for as many idle connections as there are clients.
func serveBare(ctx context.Context, address, provider string) error {
	target := &url.URL{Scheme: "http", Host: provider}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return errors.New("the default transport is another")
	}
	transport = transport.Clone()
	transport.MaxIdleConnsPerHost = 256
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := &http.Server{Addr: address, Handler: proxy, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// nginxConfig is nginx as it comes, with what every guide adds: connections to the provider that
// live on, and bodies of this size allowed. It writes a body of more than 16 KB to a file first.
const nginxConfig = `daemon off; master_process on; worker_processes %[1]d; pid %[2]s/nginx.pid; error_log stderr warn;
%[5]s
events { worker_connections 1024; }
http {
  access_log off; client_max_body_size 64m;
  client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi; uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
  upstream provider { server %[3]s; keepalive 256; }
  server {
    listen %[4]s;
    keepalive_requests 1000000;
    location / { proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}
`

func (h *house) openNginx(ctx context.Context, provider string) error {
	_, err := exec.LookPath("nginx")
	if errors.Is(err, exec.ErrNotFound) {
		fmt.Println("nginx is not installed here: it is not measured")
		return nil
	}
	if err != nil {
		return err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	d := &door{name: "nginx", addr: address, slow: true}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // or it could not write to our folder
	}
	file := filepath.Join(h.dir, "nginx.conf")
	text := fmt.Sprintf(nginxConfig, runtime.GOMAXPROCS(0), h.dir, provider, d.addr, user)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return h.start(ctx, d, "nginx", "-p", h.dir, "-c", file)
}

// gatewayConfig masks old results, which are kept as they are without being told otherwise: on disk.
// The provider's cache has a discount, so that "auto" has something to weigh.
const gatewayConfig = `listen = %[1]q
data_dir = %[2]q
[admin]
listen = %[3]q
[observation_masking.schema1]
enabled = true
advance = %[4]q
[[providers]]
name = "openai"
kind = "openai"
base_url = "http://%[5]s"
cache = { write = 1.0, read = 0.5 }
[[providers]]
name = "anthropic"
kind = "anthropic"
base_url = "http://%[5]s"
cache = { write = 1.0, read = 0.5 }
`

func (h *house) openGateway(ctx context.Context, binary, provider, advance string) (err error) {
	d := &door{name: "ctxgate " + advance, own: true}
	if d.addr, err = freeAddress(ctx); err != nil {
		return err
	}
	admin, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(h.dir, advance+".toml")
	text := fmt.Sprintf(gatewayConfig, d.addr, filepath.Join(h.dir, advance), admin, advance, provider)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return h.start(ctx, d, binary, "serve", "--config", file)
}

func freeAddress(ctx context.Context) (string, error) {
	port, err := freePort(ctx)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// spent is the processor time of a door's process and its children so far, where the system tells.
func (d *door) spent() time.Duration {
	if d.cmd == nil {
		return 0
	}
	pids := []string{strconv.Itoa(d.cmd.Process.Pid)}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]s/task/%[1]s/children", pids[0])) // elsewhere than on Linux: none
	var ticks int
	for _, pid := range append(pids, strings.Fields(string(children))...) {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if len(fields) < 13 {
			continue
		}
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		ticks += user + system
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
