package s3

import (
	"bytes"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/zeebo/blake3"

	"github.com/ctxgate/ctxgate/internal/varint"
	"github.com/ctxgate/ctxgate/state"
)

// Whatever begins with magic in the other driver is of this package; a value of a caller that does is stored apart.
const magic = "\x00ctxgS3\x00"

// The kinds of values in the other driver, after the magic.
const (
	kindPointer  = 'p' // to a value in a segment
	kindPending  = 'w' // a value that is to be archived, with what its object needs to have
	kindArchived = 'a' // a value that is archived
)

func isOurs(value []byte) bool {
	return len(value) > len(magic) && string(value[:len(magic)]) == magic
}

func storedKind(value []byte) byte { return value[len(magic)] }

func encodeArchived(value []byte) []byte {
	return append(append(make([]byte, 0, len(magic)+1+len(value)), magic+string(kindArchived)...), value...)
}

const sumBytes = 16

// checksum notices what was changed or cut off.
func checksum(value []byte) (sum [sumBytes]byte) {
	whole := blake3.Sum256(value)
	copy(sum[:], whole[:])
	return sum
}

var base32Name = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// hashName is a name for any bytes in the name of an object.
func hashName(text string) string {
	sum := checksum([]byte(text))
	return base32Name.EncodeToString(sum[:])
}

// pointer says where a value is.
type pointer struct {
	endHour        int64 // the segment lives until this hour since 1970
	segment        [16]byte
	written        int64 // when the segment was written, in Unix nanoseconds
	offset, length int
	sum            [sumBytes]byte
	owner          string // of the group, and the fence, for a copy into another segment
	fence          uint64
	isRebuilt      bool // made by Rebuild: a newer value may replace it
}

func (p pointer) encodeValue() []byte {
	b := append(make([]byte, 0, 96+len(p.owner)), magic+string(kindPointer)...)
	b = varint.AppendBool(b, p.isRebuilt)
	b = varint.AppendInt64(b, p.endHour)
	b = append(b, p.segment[:]...)
	b = varint.AppendInt64(b, p.written)
	b = varint.AppendInt64(b, int64(p.offset))
	b = varint.AppendInt64(b, int64(p.length))
	b = append(b, p.sum[:]...)
	b = varint.AppendString(b, p.owner)
	return varint.AppendInt64(b, int64(p.fence))
}

var errFormat = errors.New("it has another format")

func decodePointer(raw []byte) (pointer, error) {
	if !isOurs(raw) || storedKind(raw) != kindPointer {
		return pointer{}, errFormat
	}
	d := varint.NewDecoder(raw[len(magic)+1:])
	var p pointer
	p.isRebuilt = d.Bool()
	p.endHour = d.Int64()
	copy(p.segment[:], d.Bytes(len(p.segment)))
	p.written = d.Int64()
	p.offset, p.length = int(d.Int64()), int(d.Int64())
	copy(p.sum[:], d.Bytes(sumBytes))
	p.owner = d.String()
	p.fence = uint64(d.Int64())
	if d.Failed() || len(d.Rest()) > 0 || p.offset < 0 || p.length < 0 || p.length > maxValueBytes {
		return pointer{}, errFormat
	}
	return p, nil
}

// isNewer compares when two values were written.
func (p pointer) isNewer(than pointer) bool {
	if p.written != than.written {
		return p.written > than.written
	}
	if c := bytes.Compare(p.segment[:], than.segment[:]); c != 0 {
		return c > 0
	}
	return p.offset > than.offset
}

// ends is when the segment may be deleted.
func (p pointer) ends() time.Time { return time.Unix(p.endHour*3600, 0) }

func (p pointer) cacheName() string {
	return fmt.Sprintf("%s-%x-%x", base32Name.EncodeToString(p.segment[:]), p.offset, p.length) // an empty value has the offset of the next
}

// The names of objects, after the prefix.
const (
	segmentsPrefix = "segments/" // segments/HOUR/ID
	archivePrefix  = "archive/"  // archive/GROUP/KEY/OWNER/VERSION
	hourFormat     = "2006-01-02T15"
)

func segmentName(endHour int64, id [16]byte) string {
	return hourFolder(endHour) + base32Name.EncodeToString(id[:])
}

func hourFolder(endHour int64) string {
	return segmentsPrefix + time.Unix(endHour*3600, 0).UTC().Format(hourFormat) + "/"
}

// parseHourFolder reads the hour in the name of a segment or of its folder.
func parseHourFolder(name string) (int64, bool) {
	rest, ok := strings.CutPrefix(name, segmentsPrefix)
	hour, _, hasFolder := strings.Cut(rest, "/")
	t, err := time.Parse(hourFormat, hour)
	return t.Unix() / 3600, ok && hasFolder && err == nil
}

func parseSegmentName(name string) (endHour int64, id [16]byte, ok bool) {
	endHour, ok = parseHourFolder(name)
	raw, err := base32Name.DecodeString(name[strings.LastIndexByte(name, '/')+1:])
	if !ok || err != nil || len(raw) != len(id) {
		return 0, id, false
	}
	copy(id[:], raw)
	return endHour, id, true
}

// segmentEnd is until when a segment lives that has a value with this lease: half a lifetime longer, so that most
// values that are used again need no copy.
func segmentEnd(lastUsed, expires time.Time) int64 {
	const hour = int64(time.Hour / time.Millisecond)
	end := expires.UnixMilli() + max(0, expires.UnixMilli()-lastUsed.UnixMilli())/2
	return (end + hour - 1) / hour
}

// pendingItem is an item that is to be archived.
type pendingItem struct {
	item     state.Item
	lifetime time.Duration // of its group
	written  int64         // Unix nanoseconds
}

func (p pendingItem) encodeValue() []byte {
	return append([]byte(magic+string(kindPending)), p.encodeObject()...)
}

// encodeObject is also the content of the archive's object.
func (p pendingItem) encodeObject() []byte {
	b := varint.AppendString(nil, p.item.Group)
	b = varint.AppendString(b, p.item.Key)
	b = varint.AppendString(b, p.item.Owner)
	b = varint.AppendInt64(b, int64(p.item.Fence))
	b = varint.AppendBool(b, p.item.Pinned)
	b = varint.AppendInt64(b, p.lifetime.Milliseconds())
	b = varint.AppendInt64(b, p.written)
	b = varint.AppendString(b, string(p.item.Value))
	sum := checksum(b)
	return append(b, sum[:]...)
}

func decodePending(object []byte) (pendingItem, error) {
	if len(object) < sumBytes {
		return pendingItem{}, errFormat
	}
	body, end := object[:len(object)-sumBytes], object[len(object)-sumBytes:]
	if sum := checksum(body); !bytes.Equal(sum[:], end) {
		return pendingItem{}, errChecksum
	}
	d := varint.NewDecoder(body)
	p := pendingItem{item: state.Item{Group: d.String(), Key: d.String(), Owner: d.String(), Fence: uint64(d.Int64()), Pinned: d.Bool(), Archived: true}}
	p.lifetime = time.Duration(d.Int64()) * time.Millisecond
	p.written = d.Int64()
	p.item.Value = []byte(d.String())
	if d.Failed() {
		return pendingItem{}, errFormat
	}
	return p, nil
}
