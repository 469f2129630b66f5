// Package s3server starts real S3 servers for tests: gofakes3, which installs in seconds, or versitygw or MinIO, which take minutes
// to compile. All are installed once, into the user's cache. proxy.go is before the server and makes it slow, refuses requests, or counts them.
package s3server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// The credentials and the bucket of every server.
const (
	AccessKey = "ctxgate-test"
	SecretKey = "ctxgate-test-secret" //nolint:gosec // of a server on loopback
	Bucket    = "originals"
)

// EnvKind is the variable that chooses a server: gofakes3, versitygw or minio. Without it tests use gofakes3.
const EnvKind = "CTXGATE_S3_SERVER"

// modules are the servers, and where they are installed from.
var modules = map[string]string{
	"gofakes3":  "github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0",
	"versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
	"minio":     "github.com/minio/minio@latest",
}

// Server is a server with a bucket, which a test can kill and restart. It keeps what it acknowledged.
type Server struct {
	Kind  string
	Proxy *Proxy // before it

	path, dir, address string
	mu                 sync.Mutex
	process            *process.Process
	starts             int
}

// Start starts a server that ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := New(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// New starts a server with its files in a folder.
func New(dir string) (*Server, error) {
	kind := os.Getenv(EnvKind)
	if kind == "" {
		kind = "gofakes3"
	}
	path, err := install(kind)
	if err != nil {
		return nil, err
	}
	s := &Server{Kind: kind, path: path, dir: dir}
	if s.address, err = process.FreeAddress(); err != nil {
		return nil, err
	}
	if err := s.Restart(); err != nil {
		return nil, err
	}
	if s.Proxy, err = newProxy(s.address); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// install returns the path of a server's program, which it installs into the user's cache if it is not there.
func install(kind string) (string, error) {
	module, ok := modules[kind]
	if !ok {
		return "", fmt.Errorf("%s: there is no S3 server %q", EnvKind, kind)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "ctxgate-test", strings.ReplaceAll(module[strings.LastIndexByte(module, '/')+1:], "@", "-"))
	path := filepath.Join(dir, kind)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Several packages' tests may install it at once: each into a folder of its own, renamed in the end.
	own, err := os.MkdirTemp(dir, "install-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(own) }()
	cmd := exec.CommandContext(context.Background(), "go", "install", module)
	cmd.Dir = own
	cmd.Env = append(os.Environ(), "GOBIN="+own, "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("installing the S3 server %s: %w: %s", kind, err, out)
	}
	return path, os.Rename(filepath.Join(own, kind), path)
}

func (s *Server) command() *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), s.path)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey, "MINIO_ROOT_USER="+AccessKey, "MINIO_ROOT_PASSWORD="+SecretKey,
		"MINIO_BROWSER=off", "MINIO_CALLHOME_ENABLE=off", "MINIO_UPDATE=off")
	data := filepath.Join(s.dir, "s3-data")
	switch s.Kind {
	case "gofakes3":
		cmd.Args = append(cmd.Args, "-host", s.address, "-backend", "bolt", "-bolt.db", filepath.Join(s.dir, "s3.db"), "-quiet")
	case "versitygw":
		cmd.Args = append(cmd.Args, "--port", s.address, "posix", "--sidecar", filepath.Join(s.dir, "s3-meta"), data)
	case "minio":
		cmd.Args = append(cmd.Args, "server", "--quiet", "--address", s.address, data)
	}
	return cmd
}

// Restart starts the server, after [Server.Kill] again with what it had, and waits until it answers.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range []string{"s3-data", "s3-meta"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			return err
		}
	}
	s.starts++
	p, err := process.Start(s.command(), filepath.Join(s.dir, fmt.Sprintf("s3-%d.log", s.starts)))
	if err != nil {
		return err
	}
	s.process = p
	if err := p.WaitListening(s.address); err != nil {
		return err
	}
	client, err := s.Client()
	if err != nil {
		return err
	}
	// A server that listens may still be starting.
	var last error
	err = wait.Until(process.StartLimit, "the S3 server did not make a bucket", func() (bool, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		last = client.MakeBucket(ctx, Bucket, minio.MakeBucketOptions{})
		code := minio.ToErrorResponse(last).Code
		return last == nil || code == "BucketAlreadyOwnedByYou" || code == "BucketAlreadyExists", nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// Client talks to the server itself, without the proxy.
func (s *Server) Client() (*minio.Client, error) {
	return minio.New(s.address, &minio.Options{Creds: credentials.NewStaticV4(AccessKey, SecretKey, ""), Region: "us-east-1"})
}

// PID is the process id of the server.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.PID()
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.Kill()
	}
}

// Close ends the server and the proxy.
func (s *Server) Close() {
	if s.Proxy != nil {
		s.Proxy.Close()
	}
	s.Kill()
}
