package recall

import (
	"bytes"
	"context"
	"hash/maphash"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
)

// shownText is what the store remembers about a text that is shown instead of an original: the original's id,
// and how many bytes of the original its client would have passed to the model at most, 0 for all.
type shownText struct {
	id        string
	passBytes int64
}

// nothingMore is passBytes of a text whose original no client would have sent: shorter than any text.
const nothingMore = 1

func (s shownText) encodeText() []byte {
	if s.passBytes == 0 {
		return []byte(s.id)
	}
	return strconv.AppendInt(append([]byte(s.id), 0), s.passBytes, 10)
}

func decodeShownText(raw []byte) shownText {
	id, limit, _ := bytes.Cut(raw, []byte{0})
	n, _ := strconv.ParseInt(string(limit), 10, 64)
	return shownText{string(id), max(n, 0)}
}

// passBytes is about how many bytes of a result a client passes to its model at most, 0 for all.
func passBytes(l clients.Result) int64 {
	if l.Bytes > 0 && (l.Chars == 0 || l.Bytes < l.Chars) {
		return int64(l.Bytes)
	}
	return int64(l.Chars)
}

const (
	omittedCacheSize = 1 << 15 // texts in each generation
	maxMarkers       = 64      // of one text that are looked at
)

// omittedCache remembers how much of their originals texts lack: a conversation shows them on every turn.
type omittedCache struct {
	hasher gencache.Hasher
	bytes  *gencache.Cache[gencache.Fingerprint, int]
}

func newOmittedCache() omittedCache {
	return omittedCache{gencache.NewHasher(), gencache.New[gencache.Fingerprint, int](omittedCacheSize)}
}

// marker is how a shortened text names its original, and the characters of it that are missing. Markers of lines
// have no characters.
var marker = regexp.MustCompile(`prune_id=(` + idPrefix + `[0-9a-z]{` + strconv.Itoa(idLen) + `})(?: chars=(\d{1,12})-(\d{1,12}))?`)

// OmittedBytes is how many bytes are missing from a tool result because the gateway cut it before its client saw
// it: as many as the client would have sent to its model more. The text is the inside of a JSON string, as are
// the bytes that are counted. A marker alone proves nothing, since anybody can write one: the store must know the text as one that was shown to the
// tenant, by itself or as a string in JSON. Where a client added its own words, the store must have the original
// that a marker names, and the text must be long enough to have what the marker says was kept. An error means
// that the store could not answer.
func (r *Recall) OmittedBytes(ctx context.Context, tenant string, raw []byte) (int, error) {
	if !r.cfg.Enabled || !reduce.HasMarker(raw) {
		return 0, nil
	}
	key := r.omitted.hasher.Sum(func(h *maphash.Hash) {
		_, _ = h.WriteString(tenant)
		_ = h.WriteByte(0)
		_, _ = h.Write(raw)
	})
	if n, ok := r.omitted.bytes.Get(key); ok {
		return n, nil
	}
	keys, err := r.keysForReading(ctx, tenant)
	if err != nil {
		return 0, err
	}
	text := jsonscan.AppendDecoded(nil, raw)
	n, known, err := r.omittedFrom(ctx, keys, text)
	if err == nil && !known {
		n, err = r.omittedByMarkers(ctx, keys, text)
	}
	if err != nil {
		return 0, err
	}
	n = int(int64(n) * int64(len(raw)) / int64(max(1, len(text)))) // with as many escapes as the rest
	r.omitted.bytes.Put(key, n, 1)
	return n, nil
}

// omittedFrom is how many bytes of its original a text lacks; false if the gateway did not show this text.
func (r *Recall) omittedFrom(ctx context.Context, keys []tenantKeys, text []byte) (int, bool, error) {
	for _, k := range keys {
		raw, err := r.store.GetQuick(ctx, k.shortenedKey(hash128(k.shortened, func(yield func([]byte) bool) { yield(text) })))
		if err != nil {
			if err := ignoreUnknown(err); err != nil {
				return 0, false, err
			}
			continue
		}
		shown := decodeShownText(raw)
		o, err := r.originalOf(ctx, keys, shown.id)
		if o == nil || err != nil {
			return 0, false, err
		}
		whole := o.Bytes
		if shown.passBytes > 0 {
			whole = min(whole, shown.passBytes)
		}
		return int(max(0, whole-int64(len(text)))), true, nil
	}
	return 0, false, nil
}

// omittedByMarkers looks for shortened texts inside a text, by their markers.
func (r *Recall) omittedByMarkers(ctx context.Context, keys []tenantKeys, text []byte) (int, error) {
	type original struct {
		omitted, markers int64
		m                *Original
	}
	total := 0
	originals := map[string]*original{}
	for _, at := range marker.FindAllSubmatchIndex(text, maxMarkers) {
		id := string(text[at[2]:at[3]])
		o, seen := originals[id]
		if !seen {
			o = &original{}
			originals[id] = o
			n, known, err := r.omittedFrom(ctx, keys, jsonStringAround(text, at[0]))
			if err != nil {
				return 0, err
			}
			if total += n; !known {
				if o.m, err = r.originalOf(ctx, keys, id); err != nil {
					return 0, err
				}
			}
		}
		if o.m != nil && at[4] >= 0 {
			from, _ := strconv.ParseInt(string(text[at[4]:at[5]]), 10, 64)
			to, _ := strconv.ParseInt(string(text[at[6]:at[7]]), 10, 64)
			o.omitted += max(0, min(to, o.m.Chars)-max(from, 1)+1)
			o.markers += int64(at[1] - at[0])
		}
	}
	kept, omitted := int64(0), int64(0)
	for _, o := range originals {
		if o.m == nil || o.omitted == 0 || o.omitted >= o.m.Chars {
			continue // a text of which nothing was kept is nothing but a marker
		}
		kept += o.m.Chars - o.omitted
		omitted += max(0, o.omitted*o.m.Bytes/max(1, o.m.Chars)-o.markers)
	}
	if kept > int64(utf8.RuneCount(text)) {
		return total, nil // the markers are quoted, without the text around them
	}
	return total + int(omitted), nil
}

// jsonStringAround is the decoded JSON string around a place in a text, nil if there is none.
func jsonStringAround(text []byte, at int) []byte {
	isQuote := func(i int) bool {
		slashes := 0
		for i > slashes && text[i-slashes-1] == '\\' {
			slashes++
		}
		return text[i] == '"' && slashes%2 == 0
	}
	start, end := at, at
	for start >= 0 && !isQuote(start) {
		start--
	}
	for end < len(text) && !isQuote(end) {
		end++
	}
	if start < 0 || end == len(text) {
		return nil
	}
	return jsonscan.AppendDecoded(nil, text[start+1:end])
}

// originalOf is an original, nil if the store has none.
func (r *Recall) originalOf(ctx context.Context, keys []tenantKeys, id string) (*Original, error) {
	o, err := r.findOriginal(ctx, keys, id)
	if err != nil {
		return nil, ignoreUnknown(asUnknown(err))
	}
	return o, nil
}

// ignoreUnknown drops the error that something is not in the store.
func ignoreUnknown(err error) error {
	if fault.KindOf(err) == fault.UnknownHandle {
		return nil
	}
	return err
}
