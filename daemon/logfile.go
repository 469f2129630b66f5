package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"
)

// maxLogBytes is how large the log becomes before it is renamed to its older copy, of which one is kept.
const maxLogBytes = 8 << 20

// LogFile is the log of a gateway in the background. A gateway and the one that replaces it may write to it at once.
type LogFile struct {
	path string
	max  int64

	mu      sync.Mutex
	file    *os.File
	size    int64
	checked time.Time
}

// OpenLog opens the log at path, and makes its directory. What the process prints when it crashes goes there too.
func OpenLog(path string) (*LogFile, error) {
	l := &LogFile{path: path, max: maxLogBytes}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the log: %w", err)
	}
	return l, l.reopen()
}

// OlderLog is the path of the older part of a log.
func OlderLog(path string) string { return path + ".1" }

// Write appends to the log.
func (l *LogFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > l.max || time.Since(l.checked) > time.Second {
		if err := l.rotateIfNeeded(int64(len(p))); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

// rotateIfNeeded renames a log that is full, and notices that another process has renamed it.
func (l *LogFile) rotateIfNeeded(more int64) error {
	l.checked = time.Now()
	now, err := os.Stat(l.path)
	own, e := l.file.Stat()
	isOwn := err == nil && e == nil && os.SameFile(now, own)
	if isOwn {
		if l.size = now.Size(); l.size+more <= l.max || l.size == 0 {
			return nil
		}
	}
	_ = l.file.Close()
	if isOwn {
		_ = os.Rename(l.path, OlderLog(l.path)) // where that fails, the log goes on in its file
	}
	return l.reopen()
}

func (l *LogFile) reopen() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	l.file, l.size = f, 0
	if info, err := f.Stat(); err == nil {
		l.size = info.Size()
	}
	_ = debug.SetCrashOutput(f, debug.CrashOptions{})
	return nil
}

// Close closes the log.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
