package hub

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/upstream"
)

// explainFailure makes the failure of a call to a server that is down say which server that is, what is wrong, since when and
// what happens next. Other failures stay as they are. The call began at the given time.
func explainFailure(r *upstream.Server, began time.Time, err error) error {
	kind := fault.KindOf(err)
	if err == nil || kind != fault.Unavailable && kind != fault.Timeout {
		return err
	}
	st := r.Status()
	var text string
	switch {
	case st.State == upstream.StateStarting: // the failure says what it waits for
		text = "server " + strconv.Quote(st.ID) + " is not up yet: " + fault.PublicOf(err) + "; see ctxgate status"
	case st.State == upstream.StateDown:
		text = describeDown(st, time.Now())
	case kind == fault.Unavailable && st.State == upstream.StateUp && st.LastErrorAt.After(began):
		text = "server " + strconv.Quote(st.ID) + " went away during the call" + because(st) + "; it has been started again"
	default:
		return err
	}
	out := fault.Wrap(kind, text, err)
	out.RetryAfter = fault.RetryAfterOf(err)
	return out
}

// describeDown says in one line what is wrong with a server that is down or starting.
func describeDown(st upstream.Status, now time.Time) string {
	name := "server " + strconv.Quote(st.ID)
	since := st.Since.Format("15:04 MST")
	if now.Sub(st.Since) > 18*time.Hour {
		since = st.Since.Format("2 Jan 15:04 MST")
	}
	if st.State == upstream.StateStarting {
		return name + " is starting, since " + since + "; call again later, or see ctxgate status"
	}
	next := "it is being started again"
	if st.Transport != "stdio" {
		next = "it is being connected again"
	}
	if wait := st.NextAttempt.Sub(now).Round(time.Second); wait > 0 {
		next = fmt.Sprintf("the next attempt is in %s", wait)
	}
	return name + " is down since " + since + because(st) + "; " + next + "; see ctxgate status"
}

// absolutePath matches an absolute path. Agents see only its last element.
var absolutePath = regexp.MustCompile(`(^|[^\w:/.])(?:/[\w.@+~-]+)+/([\w.@+~-]+)`)

// because is why a server went down, as far as it is known: how its connection ended, and what it printed.
func because(st upstream.Status) string {
	reason := st.Problem
	if st.LastStderr != "" {
		printed := absolutePath.ReplaceAllString(st.LastStderr, "$1…/$2")
		reason = strings.TrimPrefix(reason+", ", ", ") + "it printed " + strconv.Quote(printed)
	}
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// maxNamedDown is the most servers that the error about an unknown tool names as down.
const maxNamedDown = 5

// logNotListed adds to a list's line in the log which servers are not in it yet because they are starting.
func logNotListed(ctx context.Context, cache *catalog.Cache, p *Plan) {
	var starts []string
	for _, r := range p.Servers {
		if progress, ok := r.StartProgress(); ok && !cache.IsKnown(r) && len(starts) < maxNamedDown {
			starts = append(starts, progress.String())
		}
	}
	if len(starts) > 0 {
		front.AddLogAttrs(ctx, slog.String("not_listed_yet", strings.Join(starts, "; ")))
	}
}

// unknownItem is the failure for a name that no server has. It may be a name of a server that has not listed anything yet: those
// that are down are named.
func (h *Hub) unknownItem(req *Request, noun, shown string) error {
	texts := []string{"unknown " + noun + " " + strconv.Quote(fault.Clip(shown))}
	for _, r := range req.Plan.Servers {
		if !req.mayUse(r.ID()) {
			continue
		}
		st := r.Status()
		if st.State != upstream.StateDown && st.State != upstream.StateStarting || h.catalog.IsKnown(r) {
			continue
		}
		if len(texts) > maxNamedDown {
			texts = append(texts, "and others")
			break
		}
		texts = append(texts, describeDown(st, time.Now()))
	}
	return fault.New(fault.NotFound, strings.Join(texts, "; "))
}
