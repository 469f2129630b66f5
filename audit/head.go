package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// head is the record of where a log ends. It is in the data directory, away from the log: without it, nobody could
// tell that the last lines are missing.
type head struct {
	position
	size    int64  // of the file that is being written
	first   uint64 // the number of the oldest line that rotation has kept
	counter uint64 // of the writes of this record
}

const (
	headMagic  = "ctxaudi1"
	headSigned = len(headMagic) + 8*4 + macBytes
	headBytes  = headSigned + macBytes
	headSlot   = 128 // the record is written to two places in turn, so that a torn write leaves the one before
)

// headFile is the open record, and the lock of the log.
type headFile struct{ file *os.File }

// headPath is the path of the record of a log.
func headPath(dir string, cfg Config) (string, error) {
	name := cfg.Path
	if cfg.IsFile() {
		abs, err := filepath.Abs(name)
		if err != nil {
			return "", fmt.Errorf("the path of the audit log: %w", err)
		}
		name = abs
	}
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(dir, "audit-"+hex.EncodeToString(sum[:8])+".head"), nil
}

func openHead(path string) (*headFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the data directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the record of the audit log: %w", err)
	}
	return &headFile{f}, nil
}

// load returns the record; false if there is none, or none that was made with one of the keys.
func (h *headFile) load(keys []*chainKey) (head, bool, error) {
	return readHead(h.file, keys)
}

func readHead(r io.ReaderAt, keys []*chainKey) (head, bool, error) {
	var data [headSlot + headBytes]byte
	n, err := r.ReadAt(data[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return head{}, false, fmt.Errorf("reading the record of the audit log: %w", err)
	}
	var newest head
	found := false
	for slot := 0; slot+headBytes <= n; slot += headSlot {
		if rec, ok := decodeHead(data[slot:slot+headBytes], keys); ok && (!found || rec.counter > newest.counter) {
			newest, found = rec, true
		}
	}
	return newest, found, nil
}

func decodeHead(data []byte, keys []*chainKey) (rec head, ok bool) {
	if string(data[:len(headMagic)]) != headMagic {
		return rec, false
	}
	for _, k := range keys {
		if sum := sumMAC(k.head, data[:headSigned]); string(sum[:]) == string(data[headSigned:]) {
			ok = true
		}
	}
	fields := data[len(headMagic):headSigned]
	rec.counter = binary.LittleEndian.Uint64(fields)
	rec.seq = binary.LittleEndian.Uint64(fields[8:])
	rec.size = int64(binary.LittleEndian.Uint64(fields[16:]))
	rec.first = binary.LittleEndian.Uint64(fields[24:])
	copy(rec.mac[:], fields[32:])
	return rec, ok
}

// save writes the record.
func (h *headFile) save(rec *head, key *chainKey) error {
	rec.counter++
	data := append(make([]byte, 0, headBytes), headMagic...)
	for _, v := range [...]uint64{rec.counter, rec.seq, uint64(rec.size), rec.first} {
		data = binary.LittleEndian.AppendUint64(data, v)
	}
	data = append(data, rec.mac[:]...)
	sum := sumMAC(key.head, data)
	data = append(data, sum[:]...)
	if _, err := h.file.WriteAt(data, int64(rec.counter%2)*headSlot); err != nil {
		return fmt.Errorf("writing the record of the audit log: %w", err)
	}
	return nil
}
