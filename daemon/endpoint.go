package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketPath is the longest path of a Unix socket: macOS allows 104 bytes, Linux 108, with a zero byte each.
const maxSocketPath = 103

// Places are the directories of a user. Nothing here reads the environment.
type Places struct {
	RuntimeDir string // $XDG_RUNTIME_DIR; may be empty
	DataDir    string // the user's data directory of ctxgate, whatever a config file says
	TempDir    string // for sockets whose paths would be too long
}

// Endpoint is where the gateway of a config file is found: its socket, its lock and its log. It depends on the user
// and the file alone, so that all clients find the same gateway.
type Endpoint struct {
	Config string // the absolute path of the config file; "" without one
	Dir    string // of the socket and the lock, for the owner only
	Log    string // of a gateway in the background
	name   string
}

// Locate returns the endpoint of a config file, and makes its directory. Some clients start their servers with few
// variables, so a missing RuntimeDir is looked for where the system has it.
func Locate(config string, p Places) (Endpoint, error) {
	if config != "" {
		abs, err := filepath.Abs(config)
		if err != nil {
			return Endpoint{}, fmt.Errorf("locating the gateway of %s: %w", config, err)
		}
		if resolved, err := filepath.EvalSymlinks(abs); err == nil {
			abs = resolved
		}
		config = abs
	}
	sum := sha256.Sum256([]byte(config))
	e := Endpoint{Config: config, name: hex.EncodeToString(sum[:8])}
	switch {
	case p.RuntimeDir != "" && isPrivateDir(p.RuntimeDir):
		e.Dir = filepath.Join(p.RuntimeDir, "ctxgate")
	case isPrivateDir(systemRuntimeDir()):
		e.Dir = filepath.Join(systemRuntimeDir(), "ctxgate")
	case p.DataDir != "":
		e.Dir = filepath.Join(p.DataDir, "run")
	}
	if e.Dir == "" || len(e.Socket()) > maxSocketPath {
		e.Dir = filepath.Join(p.TempDir, fmt.Sprintf("ctxgate-%d", os.Getuid()))
	}
	if len(e.Socket()) > maxSocketPath {
		return Endpoint{}, fmt.Errorf("the path of the socket is too long: %s; set XDG_RUNTIME_DIR to a shorter directory, or use 'ctxgate stdio --alone'", e.Socket())
	}
	if err := makePrivateDir(e.Dir); err != nil {
		return Endpoint{}, err
	}
	dir := p.DataDir
	if dir == "" {
		dir = e.Dir
	}
	e.Log = filepath.Join(dir, "logs", e.name+".log")
	return e, nil
}

// Socket is the path of the gateway's socket.
func (e Endpoint) Socket() string { return filepath.Join(e.Dir, e.name+".sock") }

// lockFile is held by whoever starts or replaces the gateway.
func (e Endpoint) lockFile() string { return filepath.Join(e.Dir, e.name+".lock") }

// makePrivateDir makes a directory that only its owner can use, or checks that it is one.
func makePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of the socket: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("checking the directory of the socket: %w", err)
	}
	if !info.IsDir() || !isOwn(info) {
		return fmt.Errorf("%s is not a directory of yours: remove it, or set XDG_RUNTIME_DIR to a directory that only you can use", dir)
	}
	if !isPrivate(info) {
		if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory needs the bit x
			return fmt.Errorf("making %s private: %w", dir, err)
		}
	}
	return nil
}

// isPrivateDir reports whether a directory exists and only its owner, the user, can use it.
func isPrivateDir(dir string) bool {
	if dir == "" || !filepath.IsAbs(dir) {
		return false
	}
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && isOwn(info) && isPrivate(info)
}

// ErrNotRunning says that no gateway listens at an endpoint.
var ErrNotRunning = errors.New("no gateway runs for this config file")
