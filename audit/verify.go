package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// VerifyOptions says what to check.
type VerifyOptions struct {
	Roots [][]byte // the root secrets, the current one first

	// Dir is the data directory with the record of the log's end.
	Dir string

	// Files are parts of a log, in any order. Without files, the log of the configuration is checked, and that it is
	// complete.
	Files []string

	// Complete says that the files are the whole log.
	Complete bool

	// Prefixed says that something stands before each line, as in the files of a syslog daemon.
	Prefixed bool
}

// Verify checks a log: that each line was made with the secret, that no line is missing, twice or in another place, and
// that the end is there. The error says that the log could not be read.
func Verify(cfg Config, opts VerifyOptions) (*Report, error) {
	path, err := headPath(opts.Dir, cfg)
	if err != nil {
		return nil, err
	}
	keys := newKeys(opts.Roots)
	v := &verifier{keys: keys, prefixed: opts.Prefixed, complete: opts.Complete || len(opts.Files) == 0}
	parts, err := v.openParts(cfg, opts, path)
	defer func() {
		for _, p := range parts {
			p.file.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if err := v.checkPart(p.name, p.file); err != nil {
			return nil, err
		}
	}
	v.checkEnds()
	return &v.report, nil
}

// part is one file of a log.
type part struct {
	name  string
	file  *os.File
	first uint64 // the number of its first line; 0 if it has none
}

// openParts opens the files of a log and reads the record of its end, while no other process writes: what is opened
// fits together, however the log is rotated afterwards.
func (v *verifier) openParts(cfg Config, opts VerifyOptions, headPath string) (parts []part, err error) {
	// Who may only read is served, too, without the lock.
	record, err := os.OpenFile(headPath, os.O_RDWR, 0)
	if errors.Is(err, os.ErrPermission) {
		record, err = os.Open(headPath)
	} else if err == nil {
		if err := lockFile(record); err != nil {
			record.Close()
			return nil, fmt.Errorf("locking the audit log: %w", err)
		}
	}
	switch {
	case err == nil:
		defer record.Close() // and with it the lock
		if v.head, v.known, err = readHead(record, v.keys); err != nil {
			return nil, err
		}
		v.report.BadRecord = !v.known
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("opening the record of the audit log: %w", err)
	}
	names := opts.Files
	if len(names) == 0 {
		for _, r := range rotatedFiles(cfg.Path) {
			names = append(names, r.path)
		}
		names = append(names, cfg.Path)
	}
	for _, name := range names {
		p := part{name: name, file: os.Stdin}
		if name != stdoutPath {
			if p.file, err = os.Open(name); err != nil {
				return parts, fmt.Errorf("opening the audit log: %w", err)
			}
			p.first = v.firstNumber(p.file)
		}
		parts = append(parts, p)
	}
	slices.SortStableFunc(parts, func(a, b part) int {
		switch {
		case a.first < b.first:
			return -1
		case a.first > b.first:
			return 1
		}
		return 0
	})
	return parts, nil
}

func (v *verifier) firstNumber(f *os.File) uint64 {
	start := make([]byte, maxLine)
	n, _ := f.ReadAt(start, 0)
	for line := range bytes.Lines(start[:n]) {
		if l, ok := parseLine(v.trimPrefix(bytes.TrimSuffix(line, []byte("\n")))); ok {
			return l.seq
		}
	}
	return 0
}

// verifier checks line by line.
type verifier struct {
	keys     []*chainKey
	prefixed bool
	complete bool
	head     head
	known    bool // head is valid

	report Report
	first  uint64   // the number of the first line
	last   position // of the last line that is part of the log
	linked bool     // the next line must name last.mac
	key    int      // of the last line: a later line is not made with an older secret
	atEnd  bool     // the recorded last line was met, with the recorded MAC
}

// trimPrefix returns the line from its first member on.
func (v *verifier) trimPrefix(line []byte) []byte {
	if i := bytes.Index(line, []byte(lineStart)); v.prefixed && i > 0 {
		return line[i:]
	}
	return line
}

func (v *verifier) checkPart(name string, r io.Reader) error {
	info := &PartReport{Name: name}
	v.report.Parts = append(v.report.Parts, info)
	in := bufio.NewReaderSize(r, 2*maxLine)
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			v.report.addFinding(name, number, "this is longer than any line of an audit log")
			v.linked = false
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("reading %s: %w", name, err)
			}
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			v.checkPartial(name, number, line)
			return nil
		case err != nil:
			return fmt.Errorf("reading %s: %w", name, err)
		default:
			v.checkLine(info, number, line[:len(line)-1])
		}
	}
}

// checkPartial judges an end without a line break. After the recorded end it may be a line that is being written.
func (v *verifier) checkPartial(name string, number int, line []byte) {
	if v.known && v.last.seq >= v.head.seq && v.complete && bytes.HasPrefix(line, []byte(lineStart)) {
		v.report.Partial = len(line)
		return
	}
	v.report.addFinding(name, number, "the line has no end")
}

func (v *verifier) checkLine(info *PartReport, number int, raw []byte) {
	name := info.Name
	line, ok := parseLine(v.trimPrefix(raw))
	if !ok {
		v.report.addFinding(name, number, "this is not a line of an audit log")
		v.linked = false
		return
	}
	key := keyOf(v.keys, line)
	if key < 0 {
		v.report.addFinding(name, number, lineText(line.seq, "was changed, or was made with another secret: its MAC does not match"))
		if v.last.seq == 0 || line.seq == v.last.seq+1 { // it stands for the line that was there
			v.advance(line)
		}
		v.linked = false
		return
	}
	began := v.last.seq > 0
	switch {
	case began && line.seq <= v.last.seq:
		v.report.addFinding(name, number, lineText(line.seq, "is in the wrong place, or there twice"))
		return
	case began && line.seq > v.last.seq+1:
		v.report.addFinding(name, number, missingText(v.last.seq+1, line.seq-1)+" before this one")
	case began && v.linked && line.prev != v.last.mac:
		v.report.addFinding(name, number, lineText(line.seq, "does not follow the line before it"))
	case began && key > v.key:
		v.report.addFinding(name, number, lineText(line.seq, "was made with an older secret than the line before it"))
	case !began && line.seq == 1 && line.prev != (mac{}):
		v.report.addFinding(name, number, lineText(line.seq, "does not begin a log"))
	}
	v.advance(line)
	v.linked, v.key = true, key
	if v.known && line.seq == v.head.seq && line.mac == v.head.mac {
		v.atEnd = true
	}
	v.report.count(info, line)
}

func (v *verifier) advance(line chainLine) {
	if v.last.seq == 0 {
		v.first = line.seq
	}
	v.last = line.position
}

// checkEnds compares begin and end with the record.
func (v *verifier) checkEnds() {
	r := &v.report
	r.Complete = v.complete && v.known
	if !v.complete {
		return
	}
	if !v.known {
		r.NoRecord = true
		return
	}
	if v.first == 0 && v.head.seq > 0 {
		r.addFinding("", 0, missingText(v.head.first, v.head.seq)+": the files have no line of this log")
		return
	}
	if v.first > v.head.first {
		r.addFinding("", 0, missingText(v.head.first, v.first-1)+" at the beginning")
	}
	switch {
	case v.last.seq < v.head.seq:
		r.addFinding("", 0, missingText(v.last.seq+1, v.head.seq)+" at the end")
	case !v.atEnd && v.head.seq > 0:
		r.addFinding("", 0, lineText(v.head.seq, "is not the one that was recorded as the last"))
	}
}

func lineText(seq uint64, text string) string { return fmt.Sprintf("line %d %s", seq, text) }

func missingText(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("line %d is missing", from)
	}
	return fmt.Sprintf("lines %d to %d are missing", from, to)
}
