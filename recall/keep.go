package recall

import (
	"bytes"
	"context"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// partSize is how much text goes into one stored item. An original of one part is a single
// item; a larger one is as many as it takes and, last, the manifest that makes it whole.
const partSize = 1 << 20

// Origin is where a text came from: a server's tool, or a part of the gateway, whose name has a
// colon in it, as no server's has. It can be read back by whoever may call one of its origins today.
type Origin struct{ Server, Tool string }

// OwnOrigin is the Server of what a server that is part of the gateway made: a configured server may
// have the same id.
func OwnOrigin(id string) string { return "own:" + id }

// manifest describes a kept original. Encoded: version, bytes, chars, parts, origins; then, for
// an original of one part, that part.
type manifest struct {
	Bytes, Chars int64
	Parts        int
	Origins      []Origin
	inline       []byte // the compressed text when there is one part
}

const (
	manifestVersion = 1
	maxOrigins      = 16
)

// errOrigins is what becomes of a text that came from maxOrigins others before. It is not cut: to
// leave the new origin out would cut what its caller cannot read back, and to forget another would
// take from that one's caller what was cut for it.
var errOrigins = fault.New(fault.Full, "the same text came from 16 tools before: it goes whole from any other")

func (m *manifest) encode() []byte {
	b := []byte{manifestVersion}
	b = binary.AppendUvarint(b, uint64(m.Bytes))
	b = binary.AppendUvarint(b, uint64(m.Chars))
	b = binary.AppendUvarint(b, uint64(m.Parts))
	b = binary.AppendUvarint(b, uint64(len(m.Origins)))
	for _, o := range m.Origins {
		for _, s := range []string{o.Server, o.Tool} {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
	}
	return append(b, m.inline...)
}

var errManifest = errors.New("recall: a stored manifest cannot be read")

func decodeManifest(b []byte) (*manifest, error) {
	if len(b) == 0 || b[0] != manifestVersion {
		return nil, errManifest
	}
	r := bytes.NewReader(b[1:])
	var failed error
	number := func() uint64 {
		n, err := binary.ReadUvarint(r)
		failed = errors.Join(failed, err)
		return n
	}
	text := func() string {
		n := number()
		if n > uint64(r.Len()) {
			failed = errManifest
			return ""
		}
		s := make([]byte, n)
		_, _ = r.Read(s)
		return string(s)
	}
	m := &manifest{Bytes: int64(number()), Chars: int64(number()), Parts: int(number())}
	for range min(number(), maxOrigins) {
		m.Origins = append(m.Origins, Origin{Server: text(), Tool: text()})
	}
	if failed != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, failed)
	}
	m.inline = b[len(b)-r.Len():]
	return m, nil
}

// The store's keys. All items of an original are one group: they live and die together.
func (k tenantKeys) group(id string) string           { return "cut/" + k.tag + "/" + id }
func (k tenantKeys) part(id string, n int) string     { return fmt.Sprintf("%s/%d", k.group(id), n) }
func (k tenantKeys) madeKey(sum [idBytes]byte) string { return "made/" + k.tag + "/" + formatID(sum) }

// original is a text to keep: a string of a reply, or a value.
type original struct {
	id    string
	chars int
	made  []string // the store's keys for the texts it becomes

	pieces iter.Seq[[]byte] // the text, in pieces of at most a part
	single bool             // in one piece
}

// newOriginal prepares a text of size raw bytes. It is read twice, for its id and to be packed:
// one of one part is decoded once for both.
func newOriginal(k tenantKeys, text iter.Seq[[]byte], size, chars int) original {
	o := original{chars: chars, pieces: text, single: size <= partSize}
	if o.single {
		whole := make([]byte, 0, size)
		for piece := range text {
			whole = append(whole, piece...)
		}
		o.pieces = func(yield func([]byte) bool) { yield(whole) }
	}
	o.id = formatID(hash128(k.id, o.pieces))
	if !o.single {
		o.pieces = even(text)
	}
	return o
}

// even cuts a text into parts at the same places however it came: two who keep one text at once,
// the one escaped and the other not, write each other's parts.
func even(text iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		part := make([]byte, 0, partSize)
		for piece := range text {
			for len(piece) > 0 {
				n := min(len(piece), partSize-len(part))
				part = append(part, piece[:n]...)
				piece = piece[n:]
				if len(part) < partSize {
					continue
				}
				if !yield(part) {
					return
				}
				part = part[:0]
			}
		}
		if len(part) > 0 {
			yield(part)
		}
	}
}

// items are what must be put for o to be readable. Parts of a large original are put here
// already, one by one; what is returned makes it whole.
func (r *Recall) items(ctx context.Context, k tenantKeys, o original, from Origin) ([]state.Item, error) {
	aead, err := k.aead(o.id)
	if err != nil {
		return nil, err
	}
	m, err := r.kept(ctx, k, o.id, aead)
	if err != nil {
		return nil, err
	}
	if m == nil {
		if m, err = r.parts(ctx, k, o, aead); err != nil {
			return nil, err
		}
	} else if slices.Contains(m.Origins, from) {
		// A text that is shown on every turn costs reads, no writes.
		return slices.DeleteFunc(k.madeItems(o), func(i state.Item) bool {
			_, err := r.store.Get(ctx, i.Key)
			return err == nil
		}), nil
	}
	if len(m.Origins) == maxOrigins {
		return nil, errOrigins
	}
	// Of two who add an origin at once, one may be overwritten: its own next text brings it back.
	m.Origins = append(m.Origins, from)
	sealed := seal(aead, o.id, manifestPart, m.encode())
	whole := state.Item{Key: k.group(o.id), Group: k.group(o.id), Value: sealed}
	return append([]state.Item{whole}, k.madeItems(o)...), nil
}

// kept is the manifest of an original that is there already, nil when it is not. Its lease is
// renewed before it is read: parts that are found must not expire before the cut is shown.
func (r *Recall) kept(ctx context.Context, k tenantKeys, id string, aead cipher.AEAD) (*manifest, error) {
	found, err := r.store.Touch(ctx, k.group(id))
	if !found || err != nil {
		return nil, err
	}
	m, err := r.manifest(ctx, k, id, aead)
	if err != nil && fault.KindOf(notFound(err)) == fault.Unknown {
		return nil, nil // parts without a manifest, or one that cannot be read: put it all anew
	}
	return m, err
}

// madeItems remember the texts that o becomes, and whose they are.
func (k tenantKeys) madeItems(o original) []state.Item {
	var items []state.Item
	for _, key := range o.made {
		items = append(items, state.Item{Key: key, Group: k.group(o.id), Value: []byte(o.id)})
	}
	return items
}

// parts compresses and seals o's text. A text of one part comes back inside the manifest; of a
// larger one each part is in the store when the next is begun, so that memory holds one. Whether
// there is more than one is known only when the second comes: escapes may be most of a text.
func (r *Recall) parts(ctx context.Context, k tenantKeys, o original, aead cipher.AEAD) (*manifest, error) {
	m := &manifest{Chars: int64(o.chars)}
	var packed []byte // used again for each part: only what is sealed goes to the store
	if !o.single {
		packed = make([]byte, 0, partSize+partSize/16)
	}
	put := func() error { // the part that packed holds, the last so far
		n := m.Parts - 1
		return r.store.Put(ctx, state.Item{Key: k.part(o.id, n), Group: k.group(o.id), Value: seal(aead, o.id, n, packed)})
	}
	for piece := range o.pieces {
		if m.Parts > 0 {
			if err := put(); err != nil {
				return nil, err
			}
		}
		m.Bytes += int64(len(piece))
		packed = r.codec.enc.EncodeAll(piece, packed[:0])
		m.Parts++
	}
	if m.Parts <= 1 {
		m.inline = packed
		return m, nil
	}
	return m, put()
}

// manifestPart is the manifest's place among the parts when it is sealed.
const manifestPart = -1

// seal binds text to its place: a part cannot stand in for another, nor for another original's.
func seal(aead cipher.AEAD, id string, part int, text []byte) []byte {
	return aead.Seal(nil, nil, text, fmt.Appendf(nil, "%s/%d", id, part))
}

func unseal(aead cipher.AEAD, id string, part int, sealed []byte) ([]byte, error) {
	text, err := aead.Open(nil, nil, sealed, fmt.Appendf(nil, "%s/%d", id, part))
	if err != nil {
		// A wrong secret, or a damaged store: to whoever asks it is as if it were not there.
		return nil, unknown(err)
	}
	return text, nil
}

func (r *Recall) manifest(ctx context.Context, k tenantKeys, id string, aead cipher.AEAD) (*manifest, error) {
	sealed, err := r.store.Get(ctx, k.group(id))
	if err != nil {
		return nil, err
	}
	plain, err := unseal(aead, id, manifestPart, sealed)
	if err != nil {
		return nil, err
	}
	return decodeManifest(plain)
}
