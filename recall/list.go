package recall

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/linesearch"
	"github.com/ctxgate/ctxgate/state"
)

// The limits of one list.
const (
	listPage        = 256     // entries that are read at once
	maxListedIDs    = 1 << 18 // originals whose calls are known while older ones are looked for
	maxCandidates   = 1 << 12 // older originals that are searched for a pattern
	matchBytes      = 8 << 10 // of the lines that match in one original
	firstLineBytes  = 4 << 10 // of an original in which its first line is looked for
	maxListedCall   = 1 << 10 // originals of one call
	shownLineLength = 200     // bytes of a line in a list
)

// ListRequest says which originals to list.
type ListRequest struct {
	Limit    int                 // the most entries; must be positive
	Since    time.Time           // only what was stored at this time or later; zero for no limit
	CallID   string              // only what came from this call; "" for all
	Pattern  *linesearch.Pattern // only texts with a line that matches; nil for all
	MaxBytes int64               // of text that is searched for the pattern; 0 for no limit
}

// Listed is an original in a list, once for each call that it came from.
type Listed struct {
	ID           string
	Bytes, Chars int64
	Call         Call      // At is zero for an original that a version before calls were recorded stored
	LastUsed     time.Time // when such an original was last stored, shown or read, to within some minutes; zero for others
	Line         int       // the number of Text among the lines
	Text         string    // the first line with a letter or digit in it or, with a pattern, the first that matches
}

// List is a list of originals, and whether it ends before everything was looked at.
type List struct {
	Originals []Listed
	More      bool  // the limit was reached, and there may be more
	Searched  int64 // bytes of text that were searched for the pattern
	Stopped   bool  // MaxBytes were searched, or too many originals: what is older was not looked at
}

var errListEnd = errors.New("the list is complete")

// lister collects a list.
type lister struct {
	r    *Recall
	keys tenantKeys
	req  ListRequest
	list List
	seen map[string]struct{} // ids of originals whose calls are recorded
}

// List lists originals of a tenant, whatever their origin is, for an operator: the newest call first,
// then those that an earlier version stored, the last used first. An original that expires meanwhile is
// left out.
func (r *Recall) List(ctx context.Context, tenant string, req ListRequest) (List, error) {
	keys, err := r.keysForReading(ctx, tenant)
	if err != nil {
		return List{}, err
	}
	l := &lister{r: r, req: req, seen: map[string]struct{}{}}
	for _, l.keys = range keys { // what was stored under an old root secret is older
		if req.CallID != "" {
			err = l.listCall(ctx)
		} else if err = l.listCalls(ctx); err == nil {
			err = l.listWithoutCalls(ctx)
		}
		if err != nil {
			break
		}
	}
	if errors.Is(err, errListEnd) {
		err = nil
	}
	return l.list, err
}

// listCall lists the originals of one call.
func (l *lister) listCall(ctx context.Context) error {
	var found []Listed
	prefix := l.keys.callsOf(l.req.CallID)
	err := l.eachEntry(ctx, state.ListRequest{Prefix: prefix, Groups: prefix}, func(e state.Entry) error {
		if len(found) == maxListedCall {
			l.list.Stopped = true
			return errListEnd
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(e.Key, prefix), "/")
		call, err := l.readCall(ctx, id, e.Key)
		if err != nil {
			return skipUnknown(err)
		}
		if !call.At.Before(l.req.Since) {
			found = append(found, Listed{ID: id, Call: call})
		}
		return nil
	})
	if err != nil && !errors.Is(err, errListEnd) {
		return err
	}
	slices.SortStableFunc(found, func(a, b Listed) int { return b.Call.At.Compare(a.Call.At) })
	return l.addAll(ctx, found)
}

// listCalls lists originals by the calls that they came from, and remembers which originals these are.
func (l *lister) listCalls(ctx context.Context) error {
	return l.eachEntry(ctx, state.ListRequest{Prefix: l.keys.timesPrefix(), Groups: l.keys.callPrefix()}, func(e state.Entry) error {
		at, id, ok := l.keys.parseTimeKey(e.Key)
		if !ok {
			return nil
		}
		if len(l.seen) == maxListedIDs {
			l.list.Stopped = true
			return errListEnd
		}
		l.seen[id] = struct{}{}
		if at.Before(l.req.Since) {
			return nil // what follows is older, but its ids are needed
		}
		pointer, err := l.r.store.GetIn(ctx, e.Group, e.Key)
		if err != nil {
			return skipUnknown(err)
		}
		call, err := l.readCall(ctx, id, l.keys.callPrefix()+string(pointer))
		if err != nil {
			return skipUnknown(err)
		}
		if !call.At.Equal(at) {
			return nil // it was stored again later
		}
		return l.addOriginal(ctx, Listed{ID: id, Call: call})
	})
}

// listWithoutCalls lists originals whose calls are not recorded, because an earlier version stored them
// or because the record was evicted before its original.
func (l *lister) listWithoutCalls(ctx context.Context) error {
	var found []Listed
	keep := l.req.Limit - len(l.list.Originals)
	if l.req.Pattern != nil {
		keep = maxCandidates
	}
	sortAndCut := func() {
		slices.SortStableFunc(found, func(a, b Listed) int { return b.LastUsed.Compare(a.LastUsed) })
		if len(found) > keep {
			found, l.list.More = found[:keep], true
		}
	}
	prefix := l.keys.groupKey("")
	err := l.eachEntry(ctx, state.ListRequest{Prefix: prefix, Groups: prefix}, func(e state.Entry) error {
		id, err := ParseID(strings.TrimPrefix(e.Key, prefix))
		_, hasCalls := l.seen[id]
		if err != nil || hasCalls || e.LastUsed.Before(l.req.Since) {
			return nil //nolint:nilerr // a part of an original, or one that is listed
		}
		if found = append(found, Listed{ID: id, LastUsed: e.LastUsed}); len(found) >= 2*keep+listPage {
			sortAndCut()
		}
		return nil
	})
	if err != nil {
		return err
	}
	sortAndCut()
	return l.addAll(ctx, found)
}

// eachEntry calls f with every entry that is asked for, until f returns an error.
func (l *lister) eachEntry(ctx context.Context, req state.ListRequest, f func(state.Entry) error) error {
	req.Limit = listPage
	for {
		page, err := l.r.store.List(ctx, req)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := f(e); err != nil {
				return err
			}
		}
		if len(page) < listPage {
			return nil
		}
		req.After = page[len(page)-1].Key
	}
}

func (l *lister) readCall(ctx context.Context, id, key string) (Call, error) {
	c, err := l.keys.cipher(id)
	if err != nil {
		return Call{}, err
	}
	return l.r.readCall(ctx, key, c)
}

func (l *lister) addAll(ctx context.Context, found []Listed) error {
	for _, e := range found {
		if err := l.addOriginal(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// addOriginal adds an original to the list if it is there and matches the pattern. Listing does not
// renew its lease.
func (l *lister) addOriginal(ctx context.Context, e Listed) error {
	if len(l.list.Originals) == l.req.Limit {
		l.list.More = true
		return errListEnd
	}
	o, err := l.r.findOriginal(ctx, []tenantKeys{l.keys}, e.ID)
	if err != nil {
		return skipUnknown(err)
	}
	e.Bytes, e.Chars = o.Bytes, o.Chars
	if e.Call.At.IsZero() && len(o.Origins) > 0 {
		e.Call.Origin = o.Origins[0]
	}
	if l.req.Pattern != nil {
		if l.req.MaxBytes > 0 && l.list.Searched+o.Bytes > l.req.MaxBytes {
			l.list.Stopped = true
			return errListEnd
		}
		l.list.Searched += o.Bytes
		if e.Line, e.Text, err = o.firstMatch(ctx, l.req.Pattern); err == nil && e.Line == 0 {
			return nil
		}
	} else {
		e.Line, e.Text, err = o.firstLine(ctx)
	}
	if err != nil {
		return skipUnknown(err)
	}
	l.list.Originals = append(l.list.Originals, e)
	return nil
}

// skipUnknown ignores an original or a call that is gone, or cannot be read.
func skipUnknown(err error) error {
	if fault.KindOf(asUnknown(err)) == fault.UnknownHandle {
		return nil
	}
	return err
}

// firstLine is the first line with a letter or digit in it, by which a reader recognises the text; the
// first line if there is none near the beginning.
func (o *Original) firstLine(ctx context.Context) (int, string, error) {
	var start []byte
	err := o.eachBlock(ctx, func(block []byte) error {
		start = bytes.Clone(block[:min(len(block), firstLineBytes)])
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		return 0, "", err
	}
	number := 0
	for line := range bytes.Lines(start) {
		number++
		if bytes.ContainsFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			return number, clipLine(line), nil
		}
	}
	line, _, _ := bytes.Cut(start, lineBreak)
	return 1, clipLine(line), nil
}

// firstMatch is the first line that matches a pattern; number 0 if none does.
func (o *Original) firstMatch(ctx context.Context, p *linesearch.Pattern) (int, string, error) {
	got, err := o.Read(ctx, ReadRequest{Pattern: p, LineNumbers: true}, ReadLimit{Bytes: matchBytes})
	if err != nil {
		return 0, "", err
	}
	line, _, _ := bytes.Cut(got.Text, lineBreak)
	number, n := 0, 0
	for n < len(line) && line[n] >= '0' && line[n] <= '9' {
		number = number*10 + int(line[n]-'0')
		n++
	}
	return number, clipLine(bytes.TrimPrefix(line[n:], []byte("│ "))), nil
}

func clipLine(line []byte) string {
	line = bytes.TrimSpace(line)
	return fault.ClipTo(strings.ToValidUTF8(string(line[:min(len(line), 2*shownLineLength)]), ""), shownLineLength)
}
