package replicas

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/s3server"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// site is HAProxy, three replicas, their store and bucket, and a server behind them.
type site struct {
	dir      string
	replicas []*replica
	balancer string // the address of HAProxy
	stats    string // its socket
}

// replica is one gateway, which can be stopped and started again at the same address.
type replica struct {
	name, address, dir string
	running            *gateway.Gateway
	starts             int
}

// drainDelay is how long a replica says that it drains before it stops to accept calls. HAProxy's checks notice it in half a second.
const drainDelay = 2 * time.Second

func startSite(t *testing.T, binary string) *site {
	t.Helper()
	requireProgram(t, "haproxy")
	store := redisserver.Start(t, redisserver.Cluster, redisserver.Options{})
	bucket := s3server.Start(t)
	tools := httptest.NewServer(http.HandlerFunc(serveTools))
	t.Cleanup(tools.Close)
	s := &site{dir: t.TempDir()}
	for _, name := range []string{"a", "b", "c"} {
		address, err := process.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		r := &replica{name: name, address: address, dir: filepath.Join(s.dir, name)}
		config := fmt.Sprintf(`listen = %q
secret = "env:CTXGATE_SECRET"
structured_logging = true

[http]
drain_delay = %q

[admin]
listen = ""

[replicas]
listen = "127.0.0.1:0"

[state]
driver = "redis"
url = %q

[state.blobs]
url = "s3://%s/gateway"
endpoint = %q

[masking]
max_chars = 1000
head_chars = 300
tail_chars = 300

[[servers]]
id = "tools"
url = %q
`, address, drainDelay, store.URL(), s3server.Bucket, bucket.Proxy.URL, tools.URL+"/mcp")
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.dir, "ctxgate.toml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		s.replicas = append(s.replicas, r)
		r.start(t, binary)
	}
	t.Cleanup(func() {
		for _, r := range s.replicas {
			r.running.Kill()
		}
	})
	s.startBalancer(t)
	return s
}

func (r *replica) start(t *testing.T, binary string) {
	t.Helper()
	r.starts++
	cmd := exec.Command(binary, "serve", "--config", filepath.Join(r.dir, "ctxgate.toml"))
	cmd.Env = gateway.Environment(r.dir, gateway.NoPruner, "CTXGATE_SECRET=the same root secret on all of the replicas", "CTXGATE_DATA_DIR="+filepath.Join(r.dir, "data"),
		"AWS_ACCESS_KEY_ID="+s3server.AccessKey, "AWS_SECRET_ACCESS_KEY="+s3server.SecretKey)
	var err error
	if r.running, err = gateway.Start(cmd, filepath.Join(r.dir, fmt.Sprintf("log%d", r.starts))); err != nil {
		t.Fatal(err)
	}
}

// startBalancer runs HAProxy with the example of the folder deploy, at addresses of this test.
func (s *site) startBalancer(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/haproxy/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	if s.balancer, err = process.FreeAddress(); err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "haproxy") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	s.stats = filepath.Join(sockets, "stats")
	config := strings.NewReplacer("127.0.0.1:8000", s.balancer, "127.0.0.1:8001", s.replicas[0].address, "127.0.0.1:8002", s.replicas[1].address,
		"127.0.0.1:8003", s.replicas[2].address, "maxconn 8000", "maxconn 1000", "global\n", "global\n    stats socket "+s.stats+" mode 600\n").Replace(string(text))
	file := filepath.Join(s.dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(exec.Command("haproxy", "-db", "-f", file), filepath.Join(s.dir, "haproxy.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.WaitListening(s.balancer); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.replicas {
		s.waitStatus(t, r.name, "UP")
	}
}

// waitStatus waits until HAProxy has seen that a replica is up or down.
func (s *site) waitStatus(t *testing.T, name, status string) {
	t.Helper()
	wait.For(t, "HAProxy sees that "+name+" is "+status, func() bool { return strings.HasPrefix(s.statusOf(name), status) })
}

func (s *site) statusOf(name string) string {
	conn, err := net.DialTimeout("unix", s.stats, time.Second)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "show stat\n")
	table, err := csv.NewReader(conn).ReadAll()
	if err != nil || len(table) == 0 {
		return fmt.Sprint(err)
	}
	column := map[string]int{}
	for i, title := range table[0] {
		column[title] = i
	}
	for _, row := range table[1:] {
		if row[column["svname"]] == name {
			return row[column["status"]]
		}
	}
	return "unknown"
}

// textOf is the text that the tool returns for a number: no two are the same.
func textOf(n, lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "text %d, line %d: what a tool found there\n", n, i)
	}
	return b.String()
}

// serveTools is an MCP server with one tool, whose result is the text of a number.
func serveTools(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Arguments struct{ N, Lines int } `json:"arguments"`
		} `json:"params"`
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var result string
	switch m.Method {
	case "initialize":
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"tools","version":"1"}}`
	case "ping":
		result = "{}"
	case "tools/list":
		result = `{"tools":[{"name":"read","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		text, _ := json.Marshal(textOf(m.Params.Arguments.N, m.Params.Arguments.Lines))
		result = `{"content":[{"type":"text","text":` + string(text) + `}]}`
	default:
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`, m.ID)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}
