package s3

import (
	"cmp"
	"container/list"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// diskCache keeps values that were put or read a short while ago in files of a folder, and removes those first that were
// not used for the longest time. Whoever reads checks the content. Processes may share the folder; each counts what it put
// there itself and what it found.
type diskCache struct {
	dir      string
	maxBytes int64

	mu    sync.Mutex
	files map[string]*list.Element // of cachedFile
	order *list.List               // the least recently used first
	bytes int64
}

type cachedFile struct {
	name string
	size int64
}

const cacheSuffix = ".value"

// openCache opens a cache of at most maxBytes; with 0 it has nothing, ever.
func openCache(dir string, maxBytes int64) (*diskCache, error) {
	c := &diskCache{dir: dir, maxBytes: maxBytes, files: map[string]*list.Element{}, order: list.New()}
	if maxBytes <= 0 {
		return c, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the disk cache of originals: %w", err)
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the disk cache of originals: %w", err)
	}
	type aged struct {
		cachedFile
		used time.Time
	}
	var files []aged
	for _, f := range found {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		name, ok := strings.CutSuffix(f.Name(), cacheSuffix)
		if !ok { // a write that was interrupted, unless it is another process's of this moment
			if strings.HasPrefix(f.Name(), ".new-") && time.Since(info.ModTime()) > time.Hour {
				_ = os.Remove(filepath.Join(dir, f.Name()))
			}
			continue
		}
		files = append(files, aged{cachedFile{name, info.Size()}, info.ModTime()})
	}
	slices.SortFunc(files, func(a, b aged) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.name, b.name)) })
	for _, f := range files {
		c.addFile(f.cachedFile)
	}
	return c, nil
}

func (c *diskCache) path(name string) string { return filepath.Join(c.dir, name+cacheSuffix) }

// Get returns what is under a name, which may have been changed.
func (c *diskCache) Get(name string) ([]byte, bool) {
	if c.maxBytes <= 0 {
		return nil, false
	}
	value, err := os.ReadFile(c.path(name))
	if err != nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.files[name]; ok {
		c.order.MoveToBack(e)
	}
	return value, true
}

// Put stores a value. A failure is ignored: the value is read from the bucket then. A value of more than a quarter of the cache is not
// stored.
func (c *diskCache) Put(name string, value []byte) {
	if int64(len(value)) > c.maxBytes/4 {
		return
	}
	f, err := os.CreateTemp(c.dir, ".new-*") // mode 0600
	if err != nil {
		return
	}
	_, err = f.Write(value)
	if closeErr := f.Close(); err != nil || closeErr != nil || os.Rename(f.Name(), c.path(name)) != nil {
		_ = os.Remove(f.Name())
		return
	}
	c.addFile(cachedFile{name, int64(len(value))})
}

// addFile counts a file, and removes others until all fit.
func (c *diskCache) addFile(f cachedFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.files[f.name]; ok {
		c.forget(e)
	}
	c.files[f.name] = c.order.PushBack(f)
	c.bytes += f.size
	for c.bytes > c.maxBytes {
		oldest := c.order.Front()
		_ = os.Remove(c.path(c.forget(oldest).name))
	}
}

func (c *diskCache) forget(e *list.Element) cachedFile {
	f, _ := c.order.Remove(e).(cachedFile)
	delete(c.files, f.name)
	c.bytes -= f.size
	return f
}

// Remove removes a value.
func (c *diskCache) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.files[name]; ok {
		c.forget(e)
	}
	_ = os.Remove(c.path(name))
}
