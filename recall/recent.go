package recall

import (
	"hash/maphash"
	"time"

	"github.com/ctxgate/ctxgate/internal/lately"
)

// recent remembers which originals this process kept, or found kept, a short while ago. A
// conversation shows the same texts on every turn; their leases need no renewal each time, and
// their ids no hashing.
//
// What is remembered was acknowledged by the store within the last span, which is far less than
// what the store spares. Nothing counts for longer than that, however often it is asked for: then
// the store is asked again.
type recent struct {
	span   time.Duration
	marker lately.Marker
	known  *lately.Map[lately.Mark, keptAs]
}

// keptAs is the id that an original was kept under, and until when that is sure.
type keptAs struct {
	id    string
	until time.Time
}

const (
	recentSpan = 5 * time.Minute
	recentMost = 1 << 16 // texts in each half
)

func newRecent(ttl time.Duration) *recent {
	return &recent{span: min(recentSpan, ttl/8), marker: lately.NewMarker(), known: lately.NewMap[lately.Mark, keptAs](recentMost)}
}

// Sure is for how long an id that KeepAll gave can be used again without asking it.
func (r *Recall) Sure() time.Duration { return r.recent.span / 2 }

// mark tells a tenant's texts of an origin apart.
func (c *recent) mark(tenant string, t *Text) lately.Mark {
	return c.marker.Mark(func(h *maphash.Hash) {
		for _, s := range []string{tenant, t.From.Server, t.From.Tool} {
			_, _ = h.WriteString(s)
			_ = h.WriteByte(0)
		}
		for _, raw := range t.Raw {
			maphash.WriteComparable(h, len(raw))
			_, _ = h.Write(raw)
		}
	})
}

// id is the id under which a text was kept lately, "" when it was not.
func (c *recent) id(m lately.Mark, now time.Time) string {
	if as, ok := c.known.Get(m); ok && now.Before(as.until) {
		return as.id
	}
	return ""
}

func (c *recent) note(m lately.Mark, id string, now time.Time) {
	c.known.Put(m, keptAs{id, now.Add(c.span)}, 1)
}
