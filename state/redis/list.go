package redis

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/ctxgate/ctxgate/state"
)

const (
	maxListed     = 1 << 17 // entries of a list that are in memory
	listFresh     = 30 * time.Second
	listStep      = 512
	maxListFields = 1 << 16 // keys of one group that are listed
)

// listSnapshot is the last list, so that its pages are not all read from the store.
type listSnapshot struct {
	mu      sync.Mutex
	made    time.Time
	prefix  string
	groups  string
	after   string // it has no keys up to this one
	isWhole bool   // there are no keys after the last
	entries []listEntry
}

type listEntry struct {
	state.Entry
	expires int64
}

// List implements [state.Driver]. It looks at all groups; a later page is read from memory.
func (d *Driver) List(ctx context.Context, req state.ListRequest) ([]state.Entry, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	defer d.end()
	l := &d.list
	l.mu.Lock()
	defer l.mu.Unlock()
	if req.After != "" {
		if page, ok := l.page(req); ok {
			return page, nil
		}
	}
	entries, isWhole, err := d.scanItems(ctx, req)
	if err != nil {
		return nil, err
	}
	l.made, l.prefix, l.groups, l.after, l.isWhole, l.entries = time.Now(), req.Prefix, req.Groups, req.After, isWhole, entries
	page, _ := l.page(req)
	return page, nil
}

// page reads a page from the snapshot, if it has it whole.
func (l *listSnapshot) page(req state.ListRequest) ([]state.Entry, bool) {
	if l.made.IsZero() || time.Since(l.made) > listFresh || l.prefix != req.Prefix || l.groups != req.Groups || req.After < l.after {
		return nil, false
	}
	from, found := slices.BinarySearchFunc(l.entries, req.After, func(e listEntry, after string) int { return cmp.Compare(e.Key, after) })
	if found {
		from++
	}
	var page []state.Entry
	for _, e := range l.entries[from:] {
		if len(page) == req.Limit {
			return page, true
		}
		if e.expires > req.Now.UnixMilli() {
			page = append(page, e.Entry)
		}
	}
	return page, l.isWhole || len(page) == req.Limit
}

// scanItems finds the first keys after the one that a request names, in order.
func (d *Driver) scanItems(ctx context.Context, req state.ListRequest) (entries []listEntry, isWhole bool, err error) {
	isWhole = true
	for p := range partitionCount {
		for cursor := uint64(0); ; {
			scan, err := d.client.Do(ctx, d.client.B().Zscan().Key(d.base(p)+"x").Cursor(cursor).Match(globEscape(req.Groups)+"*").Count(listStep).Build()).AsScanEntry()
			if err != nil {
				return nil, false, d.asFault(ctx, err)
			}
			var groups []string
			for i := 0; i < len(scan.Elements); i += 2 { // members and scores
				groups = append(groups, scan.Elements[i])
			}
			if entries, err = d.appendKeys(ctx, req, groups, entries); err != nil {
				return nil, false, err
			}
			if len(entries) > 2*maxListed {
				entries, isWhole = firstEntries(entries, maxListed), false
			}
			if cursor = scan.Cursor; cursor == 0 {
				break
			}
		}
	}
	n := len(entries)
	entries = firstEntries(entries, maxListed)
	return entries, isWhole && n <= maxListed, nil
}

// firstEntries sorts entries, of which a scan may have found some twice, and returns the first.
func firstEntries(entries []listEntry, limit int) []listEntry {
	slices.SortFunc(entries, func(a, b listEntry) int { return cmp.Compare(a.Key, b.Key) })
	entries = slices.CompactFunc(entries, func(a, b listEntry) bool { return a.Key == b.Key })
	return entries[:min(limit, len(entries))]
}

// appendKeys adds the keys of groups.
func (d *Driver) appendKeys(ctx context.Context, req state.ListRequest, groups []string, entries []listEntry) ([]listEntry, error) {
	if len(groups) == 0 {
		return entries, nil
	}
	var reads []rueidis.Completed
	for _, g := range groups {
		reads = append(reads, d.client.B().Hget().Key(d.groupKey(g)).Field("m").Build(), d.client.B().Hkeys().Key(d.groupKey(g)).Build())
	}
	replies := d.client.DoMulti(ctx, reads...)
	for i, g := range groups {
		text, err := replies[2*i].ToString()
		if rueidis.IsRedisNil(err) {
			continue
		}
		keys, keysErr := replies[2*i+1].AsStrSlice()
		if err := cmp.Or(err, keysErr); err != nil {
			return nil, d.asFault(ctx, err)
		}
		m, err := parseMeta(text)
		if err != nil {
			return nil, d.asFault(ctx, err)
		}
		for _, field := range keys[:min(len(keys), maxListFields)] {
			key, isItem := strings.CutPrefix(field, "k")
			if isItem && key > req.After && strings.HasPrefix(key, req.Prefix) {
				entries = append(entries, listEntry{state.Entry{Key: key, Group: g, LastUsed: time.UnixMilli(m.seen)}, m.expires})
			}
		}
	}
	return entries, nil
}

// globEscape makes a pattern that matches a text alone.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}

// GroupKeys implements [state.GroupLister].
func (d *Driver) GroupKeys(ctx context.Context, group string, now time.Time) ([]string, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	defer d.end()
	name := d.groupKey(group)
	replies := d.client.DoMulti(ctx, d.client.B().Hget().Key(name).Field("m").Build(), d.client.B().Hkeys().Key(name).Build())
	text, err := replies[0].ToString()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	fields, fieldsErr := replies[1].AsStrSlice()
	if err := cmp.Or(err, fieldsErr); err != nil {
		return nil, d.asFault(ctx, err)
	}
	m, err := parseMeta(text)
	if err != nil {
		return nil, d.asFault(ctx, err)
	}
	var keys []string
	for _, field := range fields {
		if key, isItem := strings.CutPrefix(field, "k"); isItem && m.expires > now.UnixMilli() {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
