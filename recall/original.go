package recall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/varint"
	"github.com/ctxgate/ctxgate/keyring"
	"github.com/ctxgate/ctxgate/state"
)

// partSize is how much text one stored item holds. An original of one part is a single item: its
// manifest with the text inside. A larger one is several parts and, stored last, the manifest that
// makes them readable.
const partSize = 1 << 20

// Origin is where a text came from: a tool, prompt or resource of a server, or a part of the gateway, whose name
// has a colon in it, as no server id has. A caller that may use one of its origins now can read the text back.
type Origin struct {
	Server   string
	Tool     string
	Prompt   string
	Resource string // its URI
	Scope    string // limits who may read it back, as the access rules decided; "" for everybody who may use the origin
}

// item encodes what an Origin says beside its server. A tool without a scope is its name.
func (o Origin) item() string {
	if o.Prompt == "" && o.Resource == "" && o.Scope == "" {
		return o.Tool
	}
	return strings.Join([]string{"", o.Tool, o.Prompt, o.Resource, o.Scope}, "\x00")
}

// newOrigin decodes an Origin.
func newOrigin(server, item string) Origin {
	part := strings.Split(item, "\x00")
	if len(part) != 5 || part[0] != "" {
		return Origin{Server: server, Tool: item}
	}
	return Origin{server, part[1], part[2], part[3], part[4]}
}

// BuiltinOrigin is the Server of a text from a builtin server: a configured server may have the same
// id.
func BuiltinOrigin(id string) string { return "own:" + id }

// manifest describes a stored original. Encoded: version, bytes, chars, parts, origins; then, for
// an original of one part, that part.
type manifest struct {
	Bytes, Chars int64
	Parts        int
	Origins      []Origin
	inline       []byte // the compressed text when there is one part
	isCurrent    bool   // sealed with the tenant's secret, as read
}

const (
	manifestVersion = 1
	maxOrigins      = 64
)

// errTooManyOrigins refuses to store a text for one origin too many. The text is not cut then: without the
// new origin its caller could not read back what was cut, and without an older one that one's caller
// could not.
var errTooManyOrigins = fault.New(fault.Full, "the same text came from 64 tools and resources before: it goes whole from any other")

func (m *manifest) encode() []byte {
	b := []byte{manifestVersion}
	for _, n := range []int{int(m.Bytes), int(m.Chars), m.Parts, len(m.Origins)} {
		b = varint.AppendUint(b, n)
	}
	for _, o := range m.Origins {
		b = varint.AppendString(varint.AppendString(b, o.Server), o.item())
	}
	return append(b, m.inline...)
}

var errManifest = errors.New("recall: a stored manifest cannot be read")

func decodeManifest(b []byte) (*manifest, error) {
	d := varint.NewDecoder(b)
	if d.Byte() != manifestVersion {
		return nil, errManifest
	}
	m := &manifest{Bytes: int64(d.Uint64()), Chars: int64(d.Uint64()), Parts: d.Uint()}
	for range min(d.Uint64(), maxOrigins) {
		m.Origins = append(m.Origins, newOrigin(d.String(), d.String()))
	}
	if d.Failed() {
		return nil, errManifest
	}
	m.inline = d.Rest()
	return m, nil
}

// The keys of items in the store. All items of an original are one group, and expire together.
func (k tenantKeys) groupKey(id string) string       { return "cut/" + k.tag + "/" + id }
func (k tenantKeys) partKey(id string, n int) string { return fmt.Sprintf("%s/%d", k.groupKey(id), n) }
func (k tenantKeys) shortenedKey(sum [idBytes]byte) string {
	return "made/" + k.tag + "/" + formatID(sum)
}

// original is a text to store: a string of a reply, or a JSON value.
type original struct {
	id        string
	chars     int
	shortened []string // the store's keys for the texts that are shown instead
	passBytes int64    // how many bytes of it its client would have passed to the model at most; 0 for all

	chunks   iter.Seq[[]byte] // the text, in chunks of at most partSize
	isSingle bool             // in one chunk
}

// newOriginal prepares a text of size raw bytes. The text is read twice, for its id and to compress
// it; a text of one part is decoded once for both.
func newOriginal(k tenantKeys, text iter.Seq[[]byte], size, chars int) original {
	o := original{chars: chars, chunks: text, isSingle: size <= partSize}
	if o.isSingle {
		whole := make([]byte, 0, size)
		for chunk := range text {
			whole = append(whole, chunk...)
		}
		o.chunks = func(yield func([]byte) bool) { yield(whole) }
	}
	o.id = formatID(hash128(k.id, o.chunks))
	if !o.isSingle {
		o.chunks = evenChunks(text)
	}
	return o
}

// evenChunks cuts a text at every partSize bytes, however it came: two requests that store the same
// text at once, one of them escaped, may overwrite each other's parts.
func evenChunks(text iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		part := make([]byte, 0, partSize)
		for chunk := range text {
			for len(chunk) > 0 {
				n := min(len(chunk), partSize-len(part))
				part = append(part, chunk[:n]...)
				chunk = chunk[n:]
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

// originalItems returns the items that make o readable, and findable by the call that it came from,
// once they are in the store. The parts of a large original are stored here, one by one, before its
// manifest is returned.
func (r *Recall) originalItems(ctx context.Context, k tenantKeys, o original, from Call) ([]state.Item, error) {
	c, err := k.cipher(o.id)
	if err != nil {
		return nil, err
	}
	m, over, err := r.renewManifest(ctx, k, o.id, c)
	if err != nil {
		return nil, err
	}
	if m == nil || !m.isCurrent {
		stored := m
		if m, err = r.storeParts(ctx, k, o, c); err != nil {
			return nil, err
		}
		if stored != nil { // it was sealed before tenants had secrets
			m.Origins = slices.DeleteFunc(stored.Origins, func(o Origin) bool { return o == from.Origin })
		}
	} else if slices.Contains(m.Origins, from.Origin) {
		// A text that is shown on every turn costs reads, no writes.
		items := slices.DeleteFunc(k.shortenedItems(o), func(i state.Item) bool {
			found, err := r.store.Touch(ctx, i.Group)
			return found && err == nil
		})
		return append(items, r.callItems(ctx, k, o.id, c, from)...), nil
	}
	if len(m.Origins) == maxOrigins {
		return nil, errTooManyOrigins
	}
	m.Origins = append(m.Origins, from.Origin)
	sealed := sealPart(c, o.id, manifestPart, m.encode())
	// Of two requests that add an origin at once, one fails and does it again.
	items := []state.Item{{Key: k.groupKey(o.id), Group: k.groupKey(o.id), Value: sealed, Blob: true, Over: over}}
	items = append(items, k.shortenedItems(o)...)
	return append(items, r.callItems(ctx, k, o.id, c, from)...), nil
}

// renewManifest returns the manifest of an original that is stored already, nil when there is none, and what a new one
// would replace. It renews the lease before it reads: parts that are found must not expire before the cut is shown.
func (r *Recall) renewManifest(ctx context.Context, k tenantKeys, id string, c keyring.Cipher) (*manifest, *state.Expected, error) {
	found, err := r.store.Touch(ctx, k.groupKey(id))
	if !found || err != nil {
		return nil, &state.Expected{}, err
	}
	sealed, err := r.store.Get(ctx, k.groupKey(id))
	if err != nil {
		return nil, &state.Expected{}, ignoreUnknown(err) // parts without a manifest: store everything again
	}
	m, err := unsealManifest(c, id, sealed)
	if err != nil && fault.KindOf(asUnknown(err)) == fault.UnknownHandle {
		m, err = nil, nil // an unreadable one: store everything again
	}
	return m, &state.Expected{Value: sealed}, err
}

func (r *Recall) readManifest(ctx context.Context, k tenantKeys, id string, c keyring.Cipher) (*manifest, error) {
	sealed, err := r.store.Get(ctx, k.groupKey(id))
	if err != nil {
		return nil, err
	}
	return unsealManifest(c, id, sealed)
}

func unsealManifest(c keyring.Cipher, id string, sealed []byte) (*manifest, error) {
	plain, err := unsealPart(c, id, manifestPart, sealed)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(plain)
	if err == nil {
		m.isCurrent = keyring.IsCurrent(sealed)
	}
	return m, err
}

// shortenedItems map the texts that are shown instead of o to its id. Each is a group: whoever looks for such a text does
// not know its original.
func (k tenantKeys) shortenedItems(o original) []state.Item {
	var items []state.Item
	for _, key := range o.shortened {
		items = append(items, state.Item{Key: key, Group: key, Value: shownText{o.id, o.passBytes}.encodeText()})
	}
	return items
}

// storeParts compresses and seals the text of o. A text of one part is returned inside the manifest;
// of a larger one each part is stored before the next is compressed, so that memory holds one. The
// number of parts is known only at the end: most of a raw text may be escapes.
func (r *Recall) storeParts(ctx context.Context, k tenantKeys, o original, c keyring.Cipher) (*manifest, error) {
	m := &manifest{Chars: int64(o.chars)}
	var packed []byte // reused for each part: only sealed copies go to the store
	if !o.isSingle {
		packed = make([]byte, 0, partSize+partSize/16)
	}
	putPacked := func() error {
		n := m.Parts - 1
		return r.put(ctx, k, state.Item{Key: k.partKey(o.id, n), Group: k.groupKey(o.id), Value: sealPart(c, o.id, n, packed), Blob: true})
	}
	for chunk := range o.chunks {
		if m.Parts > 0 {
			if err := putPacked(); err != nil {
				return nil, err
			}
		}
		m.Bytes += int64(len(chunk))
		packed = r.compressor.enc.EncodeAll(chunk, packed[:0])
		m.Parts++
	}
	if m.Parts <= 1 {
		m.inline = packed
		return m, nil
	}
	return m, putPacked()
}

// Original is a stored text, ready to be read.
type Original struct {
	ID           string
	Bytes, Chars int64
	Origins      []Origin // a reader must be allowed to call one of them

	r      *Recall
	keys   tenantKeys
	cipher keyring.Cipher
	m      *manifest
}

// Access says whether the reader may call an origin today.
type Access func(Origin) bool

// errNoOriginAllowed is why an original is unknown to a reader who may call none of its origins.
var errNoOriginAllowed = errors.New("the reader may call none of the original's origins")

// Open finds an original of a tenant whatever its origin is, for an operator. Every reason not to
// find it, but for a failure of the store, is [ErrUnknown].
func (r *Recall) Open(ctx context.Context, tenant, id string) (*Original, error) {
	return r.OpenFor(ctx, tenant, id, func(Origin) bool { return true })
}

// OpenFor is Open for a reader who may call at least one of the origins. To any other reader the id
// is unknown.
func (r *Recall) OpenFor(ctx context.Context, tenant, id string, mayCall Access) (*Original, error) {
	id, err := ParseID(id)
	if err != nil {
		return nil, err
	}
	keys, err := r.keysForReading(ctx, tenant)
	if err != nil {
		return nil, err
	}
	o, err := r.findOriginal(ctx, keys, id)
	if err != nil {
		return nil, asUnknown(err)
	}
	if !slices.ContainsFunc(o.Origins, mayCall) {
		return nil, unknownID(errNoOriginAllowed)
	}
	// Reading renews the lease. An error is ignored: a store that cannot write may still be read.
	_, _ = r.store.Touch(ctx, o.keys.groupKey(id))
	return o, nil
}

// findOriginal looks for an original under every root secret. For an id that is not there it always does the
// same, whether the id was made up, has expired or is another tenant's: the store has nothing under that key.
func (r *Recall) findOriginal(ctx context.Context, keys []tenantKeys, id string) (*Original, error) {
	err := state.ErrUnknown
	for _, k := range keys {
		var c keyring.Cipher
		if c, err = k.cipher(id); err != nil {
			return nil, err
		}
		var m *manifest
		if m, err = r.readManifest(ctx, k, id, c); err == nil {
			return &Original{ID: id, Bytes: m.Bytes, Chars: m.Chars, Origins: m.Origins, r: r, keys: k, cipher: c, m: m}, nil
		}
		if fault.KindOf(asUnknown(err)) != fault.UnknownHandle {
			return nil, err
		}
	}
	return nil, err
}

// WriteText writes the whole text, a part at a time. After an error before the first byte nothing
// was written to w.
func (o *Original) WriteText(ctx context.Context, w io.Writer) error {
	return o.eachBlock(ctx, func(block []byte) error {
		_, err := w.Write(block)
		return err
	})
}

// eachBlock calls f with the text in blocks of about partSize that split no character. A block is
// valid only until the next. It stops at the first error of f.
func (o *Original) eachBlock(ctx context.Context, f func(block []byte) error) error {
	var buf []byte
	for n := range o.m.Parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		packed, err := o.readPart(ctx, n)
		if err != nil {
			return err
		}
		if buf, err = o.r.compressor.dec.DecodeAll(packed, buf); err != nil {
			return fmt.Errorf("decompressing part %d of %s: %w", n, o.ID, err)
		}
		end := len(buf)
		if n+1 < o.m.Parts {
			end = wholeCharsLen(buf)
		}
		if err := f(buf[:end]); err != nil {
			return err
		}
		buf = append(buf[:0], buf[end:]...)
	}
	return nil
}

// wholeCharsLen is the length of a text without an incomplete character at its end.
func wholeCharsLen(text []byte) int {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return i
			}
			break
		}
	}
	return len(text)
}

func (o *Original) readPart(ctx context.Context, n int) ([]byte, error) {
	if o.m.Parts == 1 {
		return o.m.inline, nil
	}
	sealed, err := o.r.store.GetIn(ctx, o.keys.groupKey(o.ID), o.keys.partKey(o.ID, n))
	if err != nil {
		return nil, asUnknown(err)
	}
	return unsealPart(o.cipher, o.ID, n, sealed)
}

// asUnknown turns every error that means "not there" into [ErrUnknown].
func asUnknown(err error) error {
	if fault.KindOf(err) == fault.UnknownHandle || errors.Is(err, errManifest) {
		return unknownID(err)
	}
	return err
}
