// Package varint encodes and decodes small records: numbers of variable length, strings with their length
// in front, flags.
package varint

import (
	"encoding/binary"
	"math"
)

// AppendUint appends a number that is not negative.
func AppendUint(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(n)) }

// AppendInt64 appends a number that may be negative.
func AppendInt64(dst []byte, n int64) []byte { return binary.AppendVarint(dst, n) }

// AppendString appends a string and its length.
func AppendString(dst []byte, s string) []byte { return append(AppendUint(dst, len(s)), s...) }

// AppendBool appends a flag.
func AppendBool(dst []byte, is bool) []byte {
	if is {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// Decoder reads what the functions above wrote. After a failure everything it reads is zero.
type Decoder struct {
	rest   []byte
	failed bool
}

// NewDecoder reads raw.
func NewDecoder(raw []byte) *Decoder { return &Decoder{rest: raw} }

// Failed says that something could not be read.
func (d *Decoder) Failed() bool { return d.failed }

// Rest is what was not read yet; nil after a failure.
func (d *Decoder) Rest() []byte { return d.rest }

// Bytes reads n bytes. They are part of what is decoded.
func (d *Decoder) Bytes(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.fail()
		return nil
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out
}

func (d *Decoder) fail() { d.rest, d.failed = nil, true }

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if b := d.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint64 reads a number that is not negative.
func (d *Decoder) Uint64() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// Uint reads a number of 31 bits; a larger one is a failure.
func (d *Decoder) Uint() int {
	n := d.Uint64()
	if n > math.MaxInt32 {
		d.fail()
		return 0
	}
	return int(n)
}

// Count reads how many things follow, each of which takes a byte at least.
func (d *Decoder) Count() int {
	n := d.Uint()
	if n > len(d.rest) {
		d.fail()
		return 0
	}
	return n
}

// Int64 reads a number that may be negative.
func (d *Decoder) Int64() int64 {
	n, size := binary.Varint(d.rest)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// String reads a string.
func (d *Decoder) String() string { return string(d.Bytes(d.Count())) }

// Bool reads a flag.
func (d *Decoder) Bool() bool { return d.Uint() == 1 }
