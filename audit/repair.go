package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// maxTail is how much of a file is read to find out how it ends.
const maxTail = 4 << 20

// repair corrects the record and the end of a file that is not as the record says: its process was killed between a
// write and its record or in the middle of a write, the machine stopped, or somebody changed the file.
func (f *logFile) repair(rec *head, known bool, size int64, keys []*chainKey) ([]Event, error) {
	switch {
	case !known && size == 0:
		return nil, nil
	case !known:
		return f.adopt(rec, size, keys)
	case size < rec.size:
		return f.continueShorter(rec, size)
	}
	return f.takeIn(rec, size, keys)
}

// adopt continues a log without a record after its last line.
func (f *logFile) adopt(rec *head, size int64, keys []*chainKey) ([]Event, error) {
	last, end, err := lastLine(f.file)
	if err != nil {
		return nil, err
	}
	reason := "there is no record of its end; the last line was taken for it"
	if keyOf(keys, last) < 0 {
		reason = "there is no record of its end, and the last line was made with another secret"
	}
	if rec.first, err = firstLine(f.file); err != nil {
		return nil, err
	}
	if rotated := rotatedFiles(f.path); len(rotated) > 0 {
		rec.first = min(rec.first, rotated[0].first)
	}
	rec.position, rec.size = last.position, end
	note := []Event{{Kind: KindRepair, Reason: reason}}
	if end == size {
		return note, nil
	}
	cut, err := f.removePartial(rec, size)
	return append(note, cut...), err
}

// takeIn records the lines that were written after the record was, and removes a partial line after them.
func (f *logFile) takeIn(rec *head, size int64, keys []*chainKey) ([]Event, error) {
	if size-rec.size > maxTail {
		rec.size = size
		return f.endLine(rec, "it has lines of others after its end")
	}
	tail := make([]byte, size-rec.size)
	if _, err := f.file.ReadAt(tail, rec.size); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	for {
		n := bytes.IndexByte(tail, '\n')
		if n < 0 {
			break
		}
		l, ok := parseLine(tail[:n])
		if !ok || l.seq != rec.seq+1 || l.prev != rec.mac || keyOf(keys, l) < 0 {
			rec.size = size
			return f.endLine(rec, "it has lines of others after its end")
		}
		rec.position = l.position
		rec.size += int64(n) + 1
		tail = tail[n+1:]
	}
	if len(tail) == 0 {
		return nil, nil // the process was killed before it could write the record
	}
	return f.removePartial(rec, size)
}

// removePartial removes what follows the last whole line.
func (f *logFile) removePartial(rec *head, size int64) ([]Event, error) {
	if err := f.file.Truncate(rec.size); err != nil {
		return nil, fmt.Errorf("removing a partial line of the audit log: %w", err)
	}
	return []Event{{Kind: KindRepair, Reason: "a partial line was removed: its process was killed, or the disk was full", BytesIn: size - rec.size}}, nil
}

// continueShorter continues after the recorded line in a file that no longer has it.
func (f *logFile) continueShorter(rec *head, size int64) ([]Event, error) {
	rec.size = size
	if size == 0 {
		return []Event{{Kind: KindRepair, Reason: "the file was moved away or emptied"}}, nil
	}
	return f.endLine(rec, "lines at its end are missing")
}

// endLine ends a line that has no line break, so that the next one can be read.
func (f *logFile) endLine(rec *head, reason string) ([]Event, error) {
	note := []Event{{Kind: KindRepair, Reason: reason}}
	var last [1]byte
	if _, err := f.file.ReadAt(last[:], rec.size-1); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	if last[0] == '\n' {
		return note, nil
	}
	if _, err := f.file.WriteString("\n"); err != nil {
		return nil, fmt.Errorf("writing the audit log: %w", err)
	}
	rec.size++
	return note, nil
}

// lastLine reads a file for its last line, and for where its last whole line of any kind ends.
func lastLine(f *os.File) (last chainLine, end int64, err error) {
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, math.MaxInt64), 2*maxLine)
	for at := int64(0); ; {
		line, err := in.ReadSlice('\n')
		at += int64(len(line))
		switch {
		case errors.Is(err, io.EOF):
			return last, end, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return last, end, fmt.Errorf("reading the audit log: %w", err)
		case err == nil:
			end = at
			if l, ok := parseLine(line[:len(line)-1]); ok {
				l.signed = bytes.Clone(l.signed)
				last = l
			}
		}
	}
}

// firstLine is the number of the first line of a file; 1 if it cannot be read.
func firstLine(f *os.File) (uint64, error) {
	head := make([]byte, maxLine)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("reading the audit log: %w", err)
	}
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	if l, ok := parseLine(line); ok {
		return l.seq, nil
	}
	return 1, nil
}
