package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// sink is where lines go: a file, stdout or syslog.
type sink interface {
	// prepare makes the sink ready to continue after rec, which it corrects if the sink is not as rec says. The events
	// say what was wrong. known is false where there is no record.
	prepare(rec *head, known bool, keys []*chainKey) ([]Event, error)

	// room is how many bytes may be written before rotate is called.
	room(rec *head) int64
	rotate(rec *head) error

	// writeLines returns how many bytes of whole lines were written.
	writeLines(lines []byte) (int, error)
	sync() error // to disk
	io.Closer
}

const (
	chunkBytes   = 256 << 10        // that are written at once
	lineOverhead = minLine + 20 + 2 // what a line has besides its event
	syncInterval = time.Second      // of "interval"
)

// writer writes lines to one sink and keeps the head record. One goroutine uses it.
type writer struct {
	cfg  Config
	keys []*chainKey
	file *headFile // nil: the record is only in memory
	head head
	have bool // head is valid
	sink sink

	buf   []byte     // lines of one chunk
	ends  []lineMark // of the lines in buf
	dirty bool       // not on disk yet
}

type lineMark struct {
	end int
	position
}

// Options is what the configuration does not say.
type Options struct {
	Dir    string    // the data directory
	Roots  [][]byte  // the root secrets, the current one first
	Stdout io.Writer // for the path "-"; nil where the process uses stdout for something else

	// Command is true for a process that writes a line or two: it does not record its start and end.
	Command bool
}

var errNoStdout = errors.New(`audit.path = "-": this process needs its stdout for something else; name a file, or "syslog:"`)

func openWriter(cfg Config, opts Options) (*writer, error) {
	w := &writer{cfg: cfg, keys: newKeys(opts.Roots)}
	path, err := headPath(opts.Dir, cfg)
	if err != nil {
		return nil, err
	}
	if w.file, err = openHead(path); err != nil {
		if cfg.IsFile() {
			return nil, err
		}
		// A container may have no place to write to at all.
		slog.Warn("the audit log starts with line 1 at each start, since the data directory cannot be written", "error", err)
		err = nil
	}
	switch {
	case cfg.Path == stdoutPath && opts.Stdout == nil:
		err = errNoStdout
	case cfg.Path == stdoutPath:
		w.sink = &stream{out: opts.Stdout}
	case strings.HasPrefix(cfg.Path, syslogPrefix):
		w.sink, err = openSyslog(strings.TrimPrefix(cfg.Path, syslogPrefix))
	default:
		w.sink, err = openFile(cfg)
	}
	if err != nil {
		return nil, errors.Join(err, w.closeHead())
	}
	return w, nil
}

func (w *writer) close() error { return errors.Join(w.sink.sync(), w.sink.Close(), w.closeHead()) }

func (w *writer) closeHead() error {
	if w.file == nil {
		return nil
	}
	return w.file.file.Close()
}

// append writes events, each as appendEvent made it and with a line break after it. It returns how many bytes of them
// were written.
func (w *writer) append(events []byte) (done int, err error) {
	if w.file != nil {
		if err := lockFile(w.file.file); err != nil {
			return 0, fmt.Errorf("locking the audit log: %w", err)
		}
		defer func() {
			if e := unlockFile(w.file.file); e != nil {
				err = errors.Join(err, fmt.Errorf("unlocking the audit log: %w", e))
			}
		}()
		if w.head, w.have, err = w.file.load(w.keys); err != nil {
			return 0, err
		}
	}
	if !w.have {
		w.head = head{first: 1}
	}
	notes, err := w.sink.prepare(&w.head, w.have, w.keys)
	if err != nil {
		return 0, err
	}
	w.have = true
	var first []byte
	for _, e := range notes {
		slog.Warn("the audit log was not as it was left", "what", e.Reason)
		first = append(appendEvent(first, &e), '\n')
	}
	if len(first) > 0 {
		if _, err := w.writeEvents(first); err != nil {
			return 0, err
		}
	}
	return w.writeEvents(events)
}

func (w *writer) writeEvents(events []byte) (done int, err error) {
	for done < len(events) {
		n, err := w.writeChunk(events[done:])
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// writeChunk writes as many events as fit in one chunk and in the file. It returns how many bytes of them it wrote.
func (w *writer) writeChunk(events []byte) (int, error) {
	room := min(w.sink.room(&w.head), chunkBytes)
	w.buf, w.ends = w.buf[:0], w.ends[:0]
	at, rest := w.head.position, events
	for len(rest) > 0 {
		n := bytes.IndexByte(rest, '\n')
		if int64(len(w.buf)+n+lineOverhead) > room {
			break
		}
		w.buf, at = w.keys[0].appendLine(w.buf, at, rest[:n])
		w.ends = append(w.ends, lineMark{len(w.buf), at})
		rest = rest[n+1:]
	}
	if len(w.ends) == 0 {
		return 0, w.rotate()
	}
	n, err := w.sink.writeLines(w.buf)
	written := 0
	for written < len(w.ends) && w.ends[written].end <= n {
		written++
	}
	if written == 0 {
		return 0, err
	}
	w.dirty = true
	if err == nil && w.cfg.Sync == SyncAlways {
		err = w.syncSink()
	}
	w.head.position = w.ends[written-1].position
	w.head.size += int64(w.ends[written-1].end)
	err = errors.Join(err, w.saveHead())
	if written == len(w.ends) {
		return len(events) - len(rest), err
	}
	return lengthOf(events, written), err
}

// lengthOf is the length of the first n events.
func lengthOf(events []byte, n int) int {
	length := 0
	for range n {
		length += bytes.IndexByte(events[length:], '\n') + 1
	}
	return length
}

func (w *writer) rotate() error {
	if err := w.sink.rotate(&w.head); err != nil {
		return err
	}
	return w.saveHead()
}

func (w *writer) saveHead() error {
	if w.file == nil {
		return nil
	}
	return w.file.save(&w.head, w.keys[0])
}

// syncSink forces what was written to disk.
func (w *writer) syncSink() error {
	if !w.dirty {
		return nil
	}
	w.dirty = false
	return w.sink.sync()
}
