package main

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// proxy is one way to the provider: a process, or none.
type proxy struct {
	name      string
	addr      string
	isGateway bool
	isSlow    bool             // gets less work
	process   *process.Process // nil: requests go to the provider directly
}

const bareName = "bare proxy"

// proxySet is the proxies of a run and the folder they write to.
type proxySet struct {
	proxies []*proxy
	dir     string
}

// startProxies starts every proxy to a provider: none, a bare httputil.ReverseProxy, nginx if it is installed,
// and the gateway with two advance policies.
func startProxies(ctx context.Context, provider string) (h *proxySet, err error) {
	if h, err = newProxySet(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	h.proxies = append(h.proxies, &proxy{name: "direct", addr: provider})
	if err := h.startBare(ctx, provider); err != nil {
		return h, err
	}
	if err := h.startNginx(ctx, provider); err != nil {
		return h, err
	}
	binary, err := gateway.Build(h.dir)
	if err != nil {
		return h, err
	}
	for _, advance := range []string{"auto", "turn"} {
		if err := h.startGateway(ctx, "ctxgate "+advance, binary, provider, fmt.Sprintf("[observation_masking.schema1]\nadvance = %q\n", advance)); err != nil {
			return h, err
		}
	}
	return h, nil
}

func newProxySet() (*proxySet, error) {
	dir, err := os.MkdirTemp("", "ctxgate-bench-")
	return &proxySet{dir: dir}, err
}

// close stops every process and removes what they wrote.
func (h *proxySet) close() error {
	for _, d := range h.proxies {
		if d.process != nil {
			_ = d.process.Terminate(10 * time.Second)
		}
	}
	return os.RemoveAll(h.dir)
}

// start runs a proxy's process and waits until it listens.
func (h *proxySet) start(ctx context.Context, d *proxy, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // nginx has children to end
	cmd.WaitDelay = 10 * time.Second
	// The same GOMAXPROCS for all of them.
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(runtime.GOMAXPROCS(0)), "HOME="+h.dir)
	// Not in the configuration's folder, which the gateway watches: every line would wake it.
	logs := filepath.Join(h.dir, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return err
	}
	var err error
	if d.process, err = process.Start(cmd, filepath.Join(logs, strings.ReplaceAll(d.name, " ", "-")+".log")); err != nil {
		return err
	}
	h.proxies = append(h.proxies, d)
	return d.process.WaitListening(d.addr)
}

func (h *proxySet) startBare(ctx context.Context, provider string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d := &proxy{name: bareName}
	if d.addr, err = process.FreeAddress(); err != nil {
		return err
	}
	return h.start(ctx, d, self, "bare", d.addr, provider)
}

// serveBare is the bare proxy's process: httputil.ReverseProxy with default settings except for enough idle
// connections.
func serveBare(ctx context.Context, address, provider string) error {
	target := &url.URL{Scheme: "http", Host: provider}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return errors.New("http.DefaultTransport is not an *http.Transport")
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

// nginxConfig is nginx with the usual additions: keep-alive to the provider, and a body limit that is large
// enough. nginx writes bodies of more than 16 KB to a file first.
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

func (h *proxySet) startNginx(ctx context.Context, provider string) error {
	_, err := exec.LookPath("nginx")
	if errors.Is(err, exec.ErrNotFound) {
		fmt.Println("nginx is not installed and not measured")
		return nil
	}
	if err != nil {
		return err
	}
	address, err := process.FreeAddress()
	if err != nil {
		return err
	}
	d := &proxy{name: "nginx", addr: address, isSlow: true}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // or it could not write to this folder
	}
	file := filepath.Join(h.dir, "nginx.conf")
	text := fmt.Sprintf(nginxConfig, runtime.GOMAXPROCS(0), h.dir, provider, d.addr, user)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return h.start(ctx, d, "nginx", "-p", h.dir, "-c", file)
}

// gatewayConfig masks old results and stores originals on disk, the default. The provider's cache has a
// discount, which the "auto" policy weighs.
const gatewayConfig = `listen = %[1]q
data_dir = %[2]q
[admin]
listen = %[3]q
%[4]s
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

func (h *proxySet) startGateway(ctx context.Context, name, binary, provider, settings string) (err error) {
	d := &proxy{name: name, isGateway: true}
	if d.addr, err = process.FreeAddress(); err != nil {
		return err
	}
	admin, err := process.FreeAddress()
	if err != nil {
		return err
	}
	file := filepath.Join(h.dir, strings.ReplaceAll(name, " ", "-"))
	text := fmt.Sprintf(gatewayConfig, d.addr, file, admin, settings, provider)
	if err := os.WriteFile(file+".toml", []byte(text), 0o600); err != nil {
		return err
	}
	return h.start(ctx, d, binary, "serve", "--config", file+".toml")
}

// cpuTime is the processor time of a proxy's process and its children so far; 0 where there is no /proc.
func (d *proxy) cpuTime() time.Duration {
	if d.process == nil {
		return 0
	}
	total, _ := process.CPUTime(d.process.PID())
	children, _ := process.Children(d.process.PID())
	for _, pid := range children {
		own, _ := process.CPUTime(pid)
		total += own
	}
	return total
}
