// Package recall shortens text without losing any of it. [Recall.Shrink] stores the original of each
// long string of a reply and only then returns the edits that shorten it; [Recall.Open] gives an
// original back, byte for byte, and [Recall.RecoverText] answers a recover_text call. No other package
// writes originals.
//
// Path through the files: recall.go has the configuration; shrink.go shortens one reply, or plans the
// same for a text that is shown again and again; cut.go cuts one text with the reducers of its policy;
// structured.go finds the texts of a tool result; store.go stores texts and remembers which are stored;
// original.go is how an original is stored and opened; calls.go says which calls it came from, and list.go lists them; keys.go has ids, keys and encryption; read.go
// reads a part of an original, lines.go by line, search.go by pattern; omitted.go says how much a text lacks of
// its original; records.go stores small values
// for conversations.
//
// Invariants:
//   - Stored before cut: a string is shortened only after the store acknowledged its original.
//   - Deterministic: an id is a keyed hash of tenant and text, so the same text has the same id
//     on every turn, in every process, on every replica that shares the secret.
//   - An id is not a credential: an original is found and decrypted only under the tenant it was
//     stored for; to another tenant it is as unknown as an id that never existed.
//   - Cut once: the store remembers each text that this gateway shortened, so it is not cut again;
//     a text that merely looks like one is.
//   - Consistent: what a result says in content and again in structuredContent is cut alike and
//     under one id, or, when it cannot be stored, not at all.
//   - Bounded: bytes on their way to the store never exceed spill_bytes; a string that would wait
//     longer than keep_timeout goes whole. What is read back is cut at a limit as it is written, its
//     memory comes from the request's budget, and the work of a search is counted.
//
// When the store is down, texts go whole (passWhole in shrink.go), reads fail with the store's error,
// and receipts stay valid for a few minutes (Epoch in store.go).
package recall

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/keyring"
	"github.com/ctxgate/ctxgate/state"
)

// MinSecretBytes is the shortest root secret.
const MinSecretBytes = keyring.MinSecretBytes

// Config says whether and how originals are stored.
type Config struct {
	// Store the original of everything that is cut, so that it can be read back. Default true; with false,
	// cuts are final.
	Enabled bool `key:"enabled"`

	// How long one reply may wait until its originals are stored; a duration. After that the text is sent
	// uncut. Default 10s. Must be positive.
	KeepTimeout unit.Duration `key:"keep_timeout"`

	// The most bytes of originals that may wait for the store at once; a size. Further replies wait.
	// Default 64MiB; at least 4MiB.
	SpillBytes unit.Bytes `key:"spill_bytes"`

	// The most bytes that recover_text returns at once, line numbers included; a size. A longer answer
	// ends with a line that says how to ask for the rest. Default 8MiB; at least 4KiB.
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

// minRead leaves room for some text beside the hint how to read on.
const minRead = 4 << 10

// minSpill lets one part of the largest original through.
const minSpill = 4 * partSize

// Recall stores originals and gives them back.
type Recall struct {
	store *state.Store
	ring  *keyring.Keyring
	cfg   Config
	spill *semaphore.Weighted

	compressor  *compressor
	receipts    *receiptCache
	omitted     omittedCache
	recordSlots *gencache.Cache[recordName, recordSlot]
	keys        *gencache.Cache[*keyring.Tenant, tenantKeys]
}

// New makes a Recall over a store. The secret is the root of every id and key: all replicas
// that share a store need the same. What was stored under an old secret can be read back.
func New(store *state.Store, secret []byte, cfg Config, old ...[]byte) (*Recall, error) {
	ring, err := keyring.New(store, secret, old...)
	if err != nil {
		return nil, err
	}
	return WithKeyring(store, ring, cfg)
}

// WithKeyring makes a Recall whose keys others use, too. The keyring is over the same driver as the store.
func WithKeyring(store *state.Store, ring *keyring.Keyring, cfg Config) (*Recall, error) {
	compressor, err := newCompressor()
	if err != nil {
		return nil, err
	}
	return &Recall{
		store: store, ring: ring, cfg: cfg, keys: gencache.New[*keyring.Tenant, tenantKeys](keysCacheSize), spill: semaphore.NewWeighted(int64(cfg.SpillBytes)), compressor: compressor,
		receipts: newReceiptCache(store.AckLifetime()), omitted: newOmittedCache(), recordSlots: gencache.New[recordName, recordSlot](recordSlotsSize),
	}, nil
}

// Enabled says whether originals are stored at all.
func (r *Recall) Enabled() bool { return r.cfg.Enabled }

// Stat says how much is stored.
func (r *Recall) Stat(ctx context.Context) (state.Stat, error) { return r.store.Stat(ctx) }
