package s3

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"github.com/ctxgate/ctxgate/internal/varint"
	"github.com/ctxgate/ctxgate/state"
)

const (
	// A segment ends with the checksum of its footer, the footer's length and this.
	segmentMagic = "ctxgseg1"
	trailerBytes = sumBytes + 8 + len(segmentMagic)

	maxValueBytes   = 1 << 30 // no driver has larger ones
	maxSegmentBytes = 2 * maxValueBytes
)

var errChecksum = errors.New("its checksum is another")

// entry is a value in a segment, with what a rebuild needs.
type entry struct {
	state.Item
	lastUsed, expires time.Time

	offset, length int
	sum            [sumBytes]byte
}

// segment is a number of values that are stored as one object.
type segment struct {
	endHour int64
	id      [16]byte
	written int64
	entries []entry
}

// encodeObject returns the values, one after the other, and the footer that names them. It sets their places.
func (s *segment) encodeObject() []byte {
	size := 0
	for _, e := range s.entries {
		size += len(e.Value) + len(e.Key) + len(e.Group) + len(e.Owner) + 64
	}
	b := make([]byte, 0, size+trailerBytes+32)
	for i := range s.entries {
		e := &s.entries[i]
		e.offset, e.length, e.sum = len(b), len(e.Value), checksum(e.Value)
		b = append(b, e.Value...)
	}
	start := len(b)
	b = varint.AppendInt64(b, s.written)
	b = varint.AppendUint(b, len(s.entries))
	for _, e := range s.entries {
		b = varint.AppendString(b, e.Group)
		b = varint.AppendString(b, e.Key)
		b = varint.AppendString(b, e.Owner)
		b = varint.AppendInt64(b, int64(e.Fence))
		b = varint.AppendBool(b, e.Pinned)
		b = varint.AppendInt64(b, e.lastUsed.UnixMilli())
		b = varint.AppendInt64(b, e.expires.UnixMilli())
		b = varint.AppendInt64(b, int64(e.offset))
		b = varint.AppendInt64(b, int64(e.length))
		b = append(b, e.sum[:]...)
	}
	sum := checksum(b[start:])
	length := len(b) - start
	b = append(b, sum[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(length))
	return append(b, segmentMagic...)
}

// pointer is where an entry is once the segment is encoded.
func (s *segment) pointer(i int) pointer {
	e := s.entries[i]
	return pointer{
		endHour: s.endHour, segment: s.id, written: s.written,
		offset: e.offset, length: e.length, sum: e.sum, owner: e.Owner, fence: e.Fence,
	}
}

// footerLength reads how long the footer is, from the end of a segment.
func footerLength(tail []byte) (int, error) {
	if len(tail) < trailerBytes || string(tail[len(tail)-len(segmentMagic):]) != segmentMagic {
		return 0, errFormat
	}
	n := binary.BigEndian.Uint64(tail[len(tail)-len(segmentMagic)-8:])
	if n > maxValueBytes {
		return 0, errFormat
	}
	return int(n), nil
}

// decodeFooter reads the entries of a segment, without their values, from its end.
func decodeFooter(name string, tail []byte) (*segment, error) {
	n, err := footerLength(tail)
	if err != nil || n+trailerBytes > len(tail) {
		return nil, errFormat
	}
	footer := tail[len(tail)-trailerBytes-n : len(tail)-trailerBytes]
	if sum := checksum(footer); !bytes.Equal(sum[:], tail[len(tail)-trailerBytes:][:sumBytes]) {
		return nil, errChecksum
	}
	s := &segment{}
	var ok bool
	if s.endHour, s.id, ok = parseSegmentName(name); !ok {
		return nil, errFormat
	}
	d := varint.NewDecoder(footer)
	s.written = d.Int64()
	for range d.Count() {
		e := entry{Item: state.Item{Group: d.String(), Key: d.String(), Owner: d.String(), Fence: uint64(d.Int64()), Pinned: d.Bool(), Blob: true}}
		e.lastUsed, e.expires = time.UnixMilli(d.Int64()), time.UnixMilli(d.Int64())
		e.offset, e.length = int(d.Int64()), int(d.Int64())
		copy(e.sum[:], d.Bytes(sumBytes))
		s.entries = append(s.entries, e)
	}
	if d.Failed() {
		return nil, errFormat
	}
	return s, nil
}
