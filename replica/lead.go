package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

const (
	leadPrefix   = "leader of "
	leadInterval = time.Second     // between attempts to get a lease, and to renew it
	leadPatience = 4 * time.Second // without a renewal, after which a leader stops
	leadMargin   = 2 * time.Second // between the end of that and the end of its lease
)

// Lead makes sure that one replica at a time does something: the one that holds the lease of a name starts it, and stops
// it, within grace, before the lease can end. The replica that gets the lease next starts it again. A leader that
// cannot reach the store stops, because it cannot know whether another has taken its place. The function that Lead
// returns stops it here, and lets others take over.
func (r *Replica) Lead(ctx context.Context, name string, grace time.Duration, start, stop func()) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &leader{replica: r, name: name, lifetime: leadPatience + leadInterval + storeTimeout + grace + leadMargin, start: start, stop: stop}
	l.renew(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(leadInterval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				l.renew(ctx)
			case <-ctx.Done():
				l.resign()
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// leader is this replica as one that may lead.
type leader struct {
	replica     *Replica
	name        string
	lifetime    time.Duration
	start, stop func()
	leads       bool
	renewedAt   time.Time
}

// renew gets the lease or renews it, and starts or stops what it is for.
func (l *leader) renew(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	held, err := l.replica.leases.Hold(ctx, leadPrefix+l.name, []byte(l.replica.id), l.lifetime)
	switch {
	case err == nil && held:
		l.renewedAt = began
		if !l.leads {
			l.leads = true
			slog.InfoContext(ctx, "this replica runs the server", "server", l.name)
			l.start()
		}
	case l.leads && (err == nil || time.Since(l.renewedAt) > leadPatience):
		slog.WarnContext(ctx, "this replica stops the server: its lease was not renewed", "server", l.name, "error", err)
		l.leads = false
		l.stop()
	}
}

// resign stops, and lets another replica take over at once.
func (l *leader) resign() {
	if !l.leads {
		return
	}
	l.leads = false
	l.stop()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := l.replica.leases.Release(ctx, leadPrefix+l.name, []byte(l.replica.id)); err != nil {
		slog.Debug("the lease of a server was not released", "server", l.name, "error", err)
	}
}

// The address of what a leader offers: no other host has this name.
const (
	leaderHost = "leader.replicas.invalid"

	// LeaderPath is the path at which a leader serves what has a name.
	LeaderPath = "/leader/"
)

// LeaderURL is the URL of what the leader of a name offers, for [Replica.Transport].
func LeaderURL(name string) string { return "http://" + leaderHost + LeaderPath + name }

// Transport returns a transport that sends requests for a [LeaderURL] to the replica that leads, this one or another,
// and all others to base.
func (r *Replica) Transport(base http.RoundTripper) http.RoundTripper {
	return leaderTransport{r, base}
}

type leaderTransport struct {
	replica *Replica
	base    http.RoundTripper
}

// RoundTrip sends a request.
func (t leaderTransport) RoundTrip(in *http.Request) (*http.Response, error) {
	if in.URL.Host != leaderHost {
		return t.base.RoundTrip(in)
	}
	r, name := t.replica, strings.TrimPrefix(in.URL.Path, LeaderPath)
	owner, err := r.Held(in.Context(), leadPrefix+name)
	if err == nil && owner == "" {
		err = fault.New(fault.Unavailable, "no replica runs the server now")
	}
	var address string
	if err == nil {
		address, err = r.addressOf(in.Context(), owner)
	}
	if err != nil {
		if in.Body != nil {
			_ = in.Body.Close()
		}
		return nil, fmt.Errorf("finding the replica that runs %s: %w", name, err)
	}
	out := in.Clone(in.Context())
	out.URL.Scheme, out.URL.Host, out.Host = "https", address, ""
	out.Header.Set(headerTo, owner)
	res, err := r.client.RoundTrip(out)
	if err != nil {
		return nil, fmt.Errorf("reaching the replica that runs %s: %w", name, err)
	}
	if res.StatusCode == http.StatusMisdirectedRequest { // another process has its address, or it has just stopped the server
		_ = res.Body.Close()
		return nil, errors.New("the replica that ran " + name + " does not run it any more")
	}
	return res, nil
}
