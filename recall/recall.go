// Package recall makes text fit and loses nothing. [Recall.Shrink] takes a reply's long
// strings, keeps each original, and only then gives the edits that shorten them;
// [Recall.Open] gives an original back, byte for byte. It is the only writer of originals.
//
// Path through the files: recall.go holds the words, shrink.go is the straight line of one
// reply, cut.go is one text to shorten, focus.go cuts one to the lines that a reader looks for,
// shorten.go one that is shown again and again,
// json.go finds the texts of a reply that is read as JSON, keep.go puts originals into the store,
// plain.go keeps texts that somebody else cuts, made.go knows the texts that were made here, recent.go remembers which of them were kept lately,
// note.go keeps notes about conversations, open.go reads originals back, answer.go is what a model
// asks for of one, read.go reads that much of it and no more, lines.go by line and search.go by
// pattern, seal.go derives the keys and seals what is stored, handle.go is the id a model sees.
//
// Invariants:
//   - Kept before cut: a string is shortened only after the store acknowledged its original.
//     When the store does not, the string goes through whole.
//   - Deterministic: an id is a keyed hash of tenant and text, so the same text has the same id
//     on every turn, in every process, on every replica that shares the secret.
//   - A handle is not a credential: an original is found and unsealed only under the tenant it
//     was kept for, and one of another tenant is as unknown as one that never was.
//   - Cut once: text that this gateway shortened is recognised when it comes by again, because
//     the store remembers having made it; text that merely looks like it is not.
//   - Consistent: what a result says in content and again in structuredContent is cut alike and
//     under one id, or, when it cannot be kept, not at all.
//   - Read in bounds: what is read back is cut at a limit while it is written, its memory is taken
//     from the budget of the request, and the work of a search is counted.
//   - Bounded: the bytes on their way to the store never exceed spill_bytes, however many
//     replies come at once; a string that would have to wait longer than keep_timeout goes whole.
package recall

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/internal/lately"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
)

// MinSecret is the fewest bytes a root secret may have.
const MinSecret = 32

// Config says whether and how originals are kept.
type Config struct {
	// Keep the original of everything that is cut, so that it can be read back. Default true;
	// with false, cuts are final.
	Enabled bool `key:"enabled"`

	// The longest one reply may wait for its originals to be kept; a duration. Over it, the
	// text is sent on whole. Default 10s. Zero is refused.
	KeepTimeout unit.Duration `key:"keep_timeout"`

	// The most bytes that may be on their way to the store at once; a size. Replies beyond it
	// wait their turn. Default 64MiB; at least 4MiB.
	SpillBytes unit.Bytes `key:"spill_bytes"`

	// The most that recover_text gives at once, line numbers included; a size. What is longer ends
	// with a line that says how to ask for the rest. Default 8MiB; at least 4KiB.
	ReadBytes unit.Bytes `key:"read_bytes"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{Enabled: true, KeepTimeout: unit.Duration(10 * time.Second), SpillBytes: 64 << 20, ReadBytes: 8 << 20}
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if c.KeepTimeout <= 0 {
		problems = append(problems, errors.New("keep_timeout: must be positive"))
	}
	if c.SpillBytes < minSpill {
		problems = append(problems, errors.New("spill_bytes: must be at least 4MiB"))
	}
	if c.ReadBytes < minRead {
		problems = append(problems, errors.New("read_bytes: must be at least 4KiB"))
	}
	return problems
}

// minRead leaves room for some text beside the note that says how to read on.
const minRead = 4 << 10

// minSpill lets one part of the largest original through.
const minSpill = 4 * partSize

// Recall keeps originals and gives them back.
type Recall struct {
	store *state.Store
	root  []byte
	cfg   Config
	spill *semaphore.Weighted
	codec *codec

	recent  *recent
	places  *lately.Map[noteName, *place]
	keys    sync.Map // tenantKeys by tenant
	derived atomic.Int64
}

// New makes a Recall over a store. The secret is the root of every id and key: all replicas
// that share a store need the same.
func New(store *state.Store, secret []byte, cfg Config) (*Recall, error) {
	if len(secret) < MinSecret {
		return nil, errors.New("recall: the secret must have at least 32 bytes")
	}
	codec, err := newCodec()
	if err != nil {
		return nil, err
	}
	return &Recall{store: store, root: secret, cfg: cfg, spill: semaphore.NewWeighted(int64(cfg.SpillBytes)), codec: codec, recent: newRecent(store.AckAge()), places: lately.NewMap[noteName, *place](mostPlaces)}, nil
}

// Enabled says whether anything is kept at all.
func (r *Recall) Enabled() bool { return r.cfg.Enabled }

// Stat says how much is kept.
func (r *Recall) Stat(ctx context.Context) (state.Stat, error) { return r.store.Stat(ctx) }
