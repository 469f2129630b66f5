package setup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// maxFileBytes bounds the files that are read: the largest is a client's state file.
const maxFileBytes = 64 << 20

// Edit is one file that is made or changed.
type Edit struct {
	Path      string
	Before    []byte // nil if the file does not exist
	After     []byte
	Mode      fs.FileMode // of a new file
	Client    string      // whose file it is; "" for a file of ctxgate
	IsProject bool        // it is a file of a project
}

func (e Edit) isNew() bool { return e.Before == nil }

// ReadExisting reads a file; nil without an error if there is none. An empty file is not nil.
func ReadExisting(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s is a link to a file that does not exist", path)
		}
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxFileBytes)
	}
	data, err := os.ReadFile(path)
	if err == nil && data == nil {
		data = []byte{}
	}
	return data, err
}

// writeTarget is the file to replace when a path is written: the path itself, or what it links to. A link, or a file, of
// another user is refused: a rename would take the file from its owner.
func writeTarget(path string) (target string, mode fs.FileMode, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", 0, err
	}
	target = path
	if info.Mode()&fs.ModeSymlink != 0 {
		if !isOwn(info) {
			return "", 0, fmt.Errorf("%s is a link of another user; it is not changed", path)
		}
		if target, err = filepath.EvalSymlinks(path); err != nil {
			return "", 0, fmt.Errorf("%s is a link to a file that does not exist", path)
		}
		if info, err = os.Lstat(target); err != nil {
			return "", 0, err
		}
	}
	switch {
	case !info.Mode().IsRegular():
		return "", 0, fmt.Errorf("%s is not a file", path)
	case !isOwn(info):
		return "", 0, fmt.Errorf("%s belongs to another user; it is not changed", path)
	}
	return target, info.Mode().Perm(), nil
}

func isOwn(info fs.FileInfo) bool { return runtime.GOOS == "windows" || secret.IsOwnedByUser(info) }

// writeFile writes a file whole or not at all. An existing file keeps its mode, and a link stays one.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	target := path
	if _, err := os.Lstat(path); err == nil {
		if target, mode, err = writeTarget(path); err != nil {
			return err
		}
	}
	return replaceFile(target, data, mode)
}

// replaceFile puts a new file in the place of target.
func replaceFile(target string, data []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(target), ".ctxgate-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", target, err)
	}
	return os.Rename(f.Name(), target)
}

// makeDirs makes a directory and those above it, with mode 0700, and returns the ones that were not there, outermost first.
func makeDirs(dir string) ([]string, error) {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return nil, fmt.Errorf("%s is not a directory", dir)
		}
		return nil, nil
	}
	var made []string
	if parent := filepath.Dir(dir); parent != dir {
		var err error
		if made, err = makeDirs(parent); err != nil {
			return made, err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return made, nil
		}
		return made, err
	}
	return append(made, dir), nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// isUnchanged reports whether a file still has the content that an edit was made for.
func (e Edit) isUnchanged() (bool, error) {
	now, err := ReadExisting(e.Path)
	return err == nil && (now == nil) == (e.Before == nil) && bytes.Equal(now, e.Before), err
}
