package syncdisk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is a mounted file system.
type Disk struct {
	Path string // where it is mounted

	mu      sync.Mutex
	pending map[uint64]*unsynced // by inode of the directory below
}

// unsynced is what a power cut takes back of a file.
type unsynced struct {
	file *os.File // works after the file was renamed
	size int64    // when it was last synced
	undo []region // in the order of the writes
}

// region is what a part of a file was before it was overwritten.
type region struct {
	offset int64
	data   []byte
}

// Mount mounts an empty disk for a test. Without FUSE the test fails in CI and is skipped elsewhere.
func Mount(tb testing.TB) *Disk {
	tb.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal(err)
		}
		tb.Skipf("%v; a disk that loses what was not synced needs FUSE", err)
	}
	dir, err := os.MkdirTemp("", "syncdisk")
	if err != nil {
		tb.Fatal(err)
	}
	below := filepath.Join(dir, "below")
	d := &Disk{Path: filepath.Join(dir, "disk"), pending: map[uint64]*unsynced{}}
	if err := errors.Join(os.Mkdir(below, 0o700), os.Mkdir(d.Path, 0o700)); err != nil {
		tb.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(below, &st); err != nil {
		tb.Fatal(err)
	}
	root := &fs.LoopbackRoot{Path: below, Dev: st.Dev}
	root.NewNode = func(r *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder { //nolint:staticcheck // it works, and NodeWrapChilder wraps a node that is made before
		return &diskNode{LoopbackNode: fs.LoopbackNode{RootData: r}, disk: d}
	}
	top := &diskNode{LoopbackNode: fs.LoopbackNode{RootData: root}, disk: d}
	root.RootNode = top
	var none time.Duration
	server, err := fs.Mount(d.Path, top, &fs.Options{
		EntryTimeout: &none, AttrTimeout: &none, NegativeTimeout: &none,
		MountOptions: fuse.MountOptions{FsName: "syncdisk", Name: "syncdisk", DisableXAttrs: true, MaxWrite: 1 << 20},
	})
	if err != nil {
		_ = os.RemoveAll(dir)
		tb.Fatalf("mounting a FUSE file system: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			tb.Errorf("unmounting %s: %v", d.Path, err)
			return
		}
		server.Wait()
		d.forgetAll()
		_ = os.RemoveAll(dir)
	})
	return d
}

// CutPower takes back all that was written and not synced, and returns how many bytes that were. The processes that use the
// disk must have ended.
func (d *Disk) CutPower() (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var lost int64
	for ino, u := range d.pending {
		if st, err := u.file.Stat(); err == nil {
			lost += max(0, st.Size()-u.size)
		}
		for i := len(u.undo) - 1; i >= 0; i-- {
			lost += int64(len(u.undo[i].data))
			if _, err := u.file.WriteAt(u.undo[i].data, u.undo[i].offset); err != nil {
				return lost, err
			}
		}
		if err := u.file.Truncate(u.size); err != nil {
			return lost, err
		}
		_ = u.file.Close()
		delete(d.pending, ino)
	}
	return lost, nil
}

func (d *Disk) forgetAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, u := range d.pending {
		_ = u.file.Close()
	}
	d.pending = nil
}

// change runs a change of a file from offset on, after it has saved what the change overwrites. For a truncation end is
// the file's end.
func (d *Disk) change(path string, offset, end int64, run func() syscall.Errno) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.saveBefore(path, offset, end); err != nil {
		return fs.ToErrno(err)
	}
	return run()
}

func (d *Disk) saveBefore(path string, offset, end int64) error {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil // a removed file that is still open
		}
		return fmt.Errorf("reading the size of %s: %w", path, err)
	}
	u := d.pending[st.Ino]
	if u == nil {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		u = &unsynced{file: file, size: st.Size}
		d.pending[st.Ino] = u
	}
	if n := min(end, u.size, st.Size) - offset; n > 0 {
		data := make([]byte, n)
		if _, err := u.file.ReadAt(data, offset); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		u.undo = append(u.undo, region{offset, data})
	}
	return nil
}

// markSynced forgets how a file was before. What is written while fsync runs may or may not be on the disk; here it is not,
// since changes wait for it.
func (d *Disk) markSynced(path string, fsync func() syscall.Errno) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errno := fsync(); errno != 0 {
		return errno
	}
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err == nil {
		if u := d.pending[st.Ino]; u != nil {
			_ = u.file.Close()
			delete(d.pending, st.Ino)
		}
	}
	return 0
}

// diskNode is a file or a directory.
type diskNode struct {
	fs.LoopbackNode
	disk *Disk
}

func (n *diskNode) below() string {
	return filepath.Join(n.RootData.Path, n.Path(n.Root()))
}

// Create creates a file, which is empty after a power cut until it is synced.
func (n *diskNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, file, fuseFlags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	child, _ := inode.Operations().(*diskNode)
	return inode, &diskFile{child, file.(*fs.LoopbackFile)}, fuseFlags, 0
}

// Open opens a file.
func (n *diskNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	var file fs.FileHandle
	var fuseFlags uint32
	open := func() (errno syscall.Errno) {
		file, fuseFlags, errno = n.LoopbackNode.Open(ctx, flags)
		return errno
	}
	var errno syscall.Errno
	if flags&syscall.O_TRUNC != 0 {
		errno = n.disk.change(n.below(), 0, 1<<62, open)
	} else {
		errno = open()
	}
	if errno != 0 {
		return nil, 0, errno
	}
	return &diskFile{n, file.(*fs.LoopbackFile)}, fuseFlags, 0
}

// Setattr truncates files, among other things.
func (n *diskNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if file, ok := f.(*diskFile); ok {
		f = file.file
	}
	set := func() syscall.Errno { return n.LoopbackNode.Setattr(ctx, f, in, out) }
	if size, ok := in.GetSize(); ok {
		return n.disk.change(n.below(), int64(size), 1<<62, set)
	}
	return set()
}

// Getattr reads the attributes.
func (n *diskNode) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if file, ok := f.(*diskFile); ok {
		f = file.file
	}
	return n.LoopbackNode.Getattr(ctx, f, out)
}

// diskFile is an open file. It has no other methods: the kernel must not write past it.
type diskFile struct {
	node *diskNode
	file *fs.LoopbackFile
}

// Read reads what was written, synced or not.
func (f *diskFile) Read(ctx context.Context, buf []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	return f.file.Read(ctx, buf, offset)
}

// Write writes what a power cut takes back until Fsync.
func (f *diskFile) Write(ctx context.Context, data []byte, offset int64) (written uint32, errno syscall.Errno) {
	errno = f.node.disk.change(f.node.below(), offset, offset+int64(len(data)), func() (errno syscall.Errno) {
		written, errno = f.file.Write(ctx, data, offset)
		return errno
	})
	return written, errno
}

// Fsync makes what was written durable.
func (f *diskFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	return f.node.disk.markSynced(f.node.below(), func() syscall.Errno { return 0 }) // of the disk below nobody cuts the power
}

// Flush is close, which syncs nothing.
func (f *diskFile) Flush(ctx context.Context) syscall.Errno { return f.file.Flush(ctx) }

// Release ends the use of the file.
func (f *diskFile) Release(ctx context.Context) syscall.Errno { return f.file.Release(ctx) }
