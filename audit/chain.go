package audit

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"math"
	"strconv"

	"github.com/zeebo/blake3"
)

const macBytes = 16 // of keyed BLAKE3, in the line as twice as many hexadecimal digits

type mac [macBytes]byte

// chainKey makes the MACs of lines and of the head record under one root secret. It is not safe for concurrent use.
type chainKey struct{ line, head *blake3.Hasher }

// newKeys derives a key from each root secret, the current one first.
func newKeys(roots [][]byte) []*chainKey {
	keys := make([]*chainKey, 0, len(roots))
	for _, root := range roots {
		derive := func(use string) *blake3.Hasher {
			key, err := hkdf.Expand(sha256.New, root, "ctxgate/audit-"+use+"/v1", sha256.Size)
			if err != nil {
				panic(err) // only for a length that HKDF cannot give
			}
			h, err := blake3.NewKeyed(key)
			if err != nil {
				panic(err) // only for a key that is not 32 bytes
			}
			return h
		}
		keys = append(keys, &chainKey{line: derive("line"), head: derive("head")})
	}
	return keys
}

func sumMAC(h *blake3.Hasher, data []byte) (m mac) {
	var sum [sha256.Size]byte
	h.Reset()
	_, _ = h.Write(data)
	copy(m[:], h.Sum(sum[:0]))
	return m
}

// position is a place in the chain: the last line.
type position struct {
	seq uint64 // 0 before the first line
	mac mac
}

const (
	lineStart = `{"seq":`
	prevStart = `,"prev":"`
	macStart  = `","mac":"`
	lineEnd   = `"}`

	macDigits = 2 * macBytes
	tailLen   = len(prevStart) + macDigits + len(macStart) + macDigits + len(lineEnd)
	minLine   = len(lineStart) + 1 + tailLen
	maxLine   = 32 << 10 // longer than any line that is written
)

// appendLine appends the line that follows at, with what appendEvent made, and a line break. It returns its position.
func (k *chainKey) appendLine(dst []byte, at position, body []byte) ([]byte, position) {
	begin := len(dst)
	at.seq++
	dst = append(dst, lineStart...)
	dst = strconv.AppendUint(dst, at.seq, 10)
	dst = append(dst, ',')
	dst = append(dst, body...)
	dst = append(dst, prevStart...)
	dst = hex.AppendEncode(dst, at.mac[:])
	at.mac = sumMAC(k.line, dst[begin:])
	dst = append(dst, macStart...)
	dst = hex.AppendEncode(dst, at.mac[:])
	dst = append(dst, lineEnd...)
	return append(dst, '\n'), at
}

// chainLine is a line as it says of itself.
type chainLine struct {
	position
	prev   mac
	signed []byte // what the MAC covers
}

// parseLine reads what links a line, which has no line break. It says nothing about the MAC.
func parseLine(line []byte) (l chainLine, ok bool) {
	if len(line) < minLine || !bytes.HasPrefix(line, []byte(lineStart)) {
		return l, false
	}
	tail := line[len(line)-tailLen:]
	prev, rest := tail[len(prevStart):len(prevStart)+macDigits], tail[len(prevStart)+macDigits:]
	own := rest[len(macStart) : len(macStart)+macDigits]
	if string(tail[:len(prevStart)]) != prevStart || string(rest[:len(macStart)]) != macStart || string(rest[len(macStart)+macDigits:]) != lineEnd {
		return l, false
	}
	digits := line[len(lineStart):]
	end := bytes.IndexByte(digits, ',')
	if end <= 0 || digits[0] == '0' {
		return l, false
	}
	seq, err := strconv.ParseUint(string(digits[:end]), 10, 63)
	if err != nil || seq == math.MaxInt64 {
		return l, false
	}
	if !decodeMAC(&l.prev, prev) || !decodeMAC(&l.mac, own) {
		return l, false
	}
	l.seq = seq
	l.signed = line[:len(line)-len(macStart)-macDigits-len(lineEnd)]
	return l, true
}

// decodeMAC reads lower-case digits only: a line has one form.
func decodeMAC(m *mac, digits []byte) bool {
	_, err := hex.Decode(m[:], digits)
	return err == nil && bytes.Equal(bytes.ToLower(digits), digits)
}

// keyOf is the index of the key that made a line, from a given one on; -1 if none did.
func keyOf(keys []*chainKey, l chainLine) int {
	for i, k := range keys {
		if want := sumMAC(k.line, l.signed); subtle.ConstantTimeCompare(want[:], l.mac[:]) == 1 {
			return i
		}
	}
	return -1
}
