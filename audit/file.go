package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// logFile is the log as a file that is rotated.
type logFile struct {
	path    string
	maxSize int64
	keep    int
	file    *os.File
}

func openFile(cfg Config) (*logFile, error) {
	f := &logFile{path: cfg.Path, maxSize: int64(cfg.MaxSize), keep: cfg.Keep}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of the audit log: %w", err)
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	start := make([]byte, len(lineStart))
	n, err := f.file.ReadAt(start, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		f.file.Close()
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	if !strings.HasPrefix(lineStart, string(start[:n])) {
		f.file.Close()
		return nil, fmt.Errorf("audit.path: %s has other content than an audit log: name another file, or move that one", f.path)
	}
	return f, nil
}

func (f *logFile) open() error {
	if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf(`audit.path: %s is not a regular file; "-" is stdout`, f.path)
	}
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	if f.file != nil {
		f.file.Close()
	}
	f.file = file
	return nil
}

// prepare opens the file again if it was moved away, and repairs its end.
func (f *logFile) prepare(rec *head, known bool, keys []*chainKey) ([]Event, error) {
	info, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking at the audit log: %w", err)
	}
	opened, openErr := f.file.Stat()
	if openErr != nil {
		return nil, fmt.Errorf("looking at the audit log: %w", openErr)
	}
	if err != nil || !os.SameFile(info, opened) { // another process has rotated it, or somebody has moved it
		if err := f.open(); err != nil {
			return nil, err
		}
		if info, err = f.file.Stat(); err != nil {
			return nil, fmt.Errorf("looking at the audit log: %w", err)
		}
	}
	if known && info.Size() == rec.size {
		return nil, nil
	}
	return f.repair(rec, known, info.Size(), keys)
}

func (f *logFile) room(rec *head) int64 {
	if rec.size == 0 {
		return f.maxSize
	}
	return f.maxSize - rec.size
}

func (f *logFile) writeLines(lines []byte) (int, error) {
	n, err := f.file.Write(lines)
	if err == nil {
		return n, nil
	}
	// The disk is full, or a limit is reached: what remains are whole lines. Where the cut fails, prepare makes it.
	whole := bytes.LastIndexByte(lines[:n], '\n') + 1
	if info, e := f.file.Stat(); e == nil && n > whole {
		_ = f.file.Truncate(info.Size() - int64(n-whole))
	}
	return whole, fmt.Errorf("writing the audit log: %w", err)
}

func (f *logFile) sync() error {
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("forcing the audit log to disk: %w", err)
	}
	return nil
}

// Close closes the file.
func (f *logFile) Close() error { return f.file.Close() }

// rotate renames the file after the number of its first line, starts a new one, and removes the oldest.
func (f *logFile) rotate(rec *head) error {
	first, err := firstLine(f.file)
	if err != nil {
		return err
	}
	if err := f.sync(); err != nil {
		return err
	}
	name := fmt.Sprintf("%s.%012d", f.path, first)
	for i := 2; exists(name); i++ {
		name = fmt.Sprintf("%s.%012d-%d", f.path, first, i)
	}
	if err := renameOpen(f, name); err != nil {
		return err
	}
	rec.size = 0
	rotated := rotatedFiles(f.path)
	if f.keep == 0 || len(rotated) <= f.keep {
		return nil
	}
	old := len(rotated) - f.keep
	for _, r := range rotated[:old] {
		if err := os.Remove(r.path); err != nil {
			slog.Warn("an old audit log was not removed", "error", err)
		}
	}
	rec.first = max(rec.first, rotated[old].first)
	return nil
}

// renameOpen renames the open file and opens a new one in its place.
func renameOpen(f *logFile, name string) error {
	f.file.Close() // Windows renames no open file
	err := os.Rename(f.path, name)
	old := f.file
	f.file = nil
	if openErr := f.open(); openErr != nil {
		f.file = old // closed: the next write fails and opens it again
		return errors.Join(err, openErr)
	}
	if err != nil {
		return fmt.Errorf("rotating the audit log: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

type rotatedFile struct {
	path  string
	first uint64 // as its name says
}

var rotatedSuffix = regexp.MustCompile(`^\.(\d{12,18})(?:-\d+)?$`)

// rotatedFiles lists the rotated files of a log, the oldest first.
func rotatedFiles(path string) []rotatedFile {
	entries, _ := os.ReadDir(filepath.Dir(path))
	var list []rotatedFile
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), filepath.Base(path))
		m := rotatedSuffix.FindStringSubmatch(suffix)
		if !ok || m == nil {
			continue
		}
		first, _ := strconv.ParseUint(m[1], 10, 64)
		list = append(list, rotatedFile{filepath.Join(filepath.Dir(path), e.Name()), first})
	}
	slices.SortStableFunc(list, func(a, b rotatedFile) int { return int(a.first) - int(b.first) })
	return list
}
