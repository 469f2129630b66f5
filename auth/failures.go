package auth

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/ctxgate/ctxgate/internal/gencache"
)

// How many signatures may be found wrong in a second, from one host and from all. A check takes up to 0.1 ms, so a flood
// of forged tokens takes a fifth of a core at most; tokens that were checked before are not affected, and neither are
// new ones from other hosts.
const (
	maxFailuresOfHost = 200
	maxFailures       = 2000
	maxHosts          = 10_000
)

// failureLimit counts signatures that were wrong.
type failureLimit struct {
	total *rate.Limiter
	hosts *gencache.Cache[string, *rate.Limiter]
}

func newFailureLimit() failureLimit {
	return failureLimit{rate.NewLimiter(maxFailures, maxFailures), gencache.New[string, *rate.Limiter](maxHosts)}
}

// isBelow says whether another signature from a host may be checked.
func (f failureLimit) isBelow(host string, now time.Time) bool {
	of, ok := f.hosts.Get(host)
	return f.total.TokensAt(now) >= 1 && (!ok || of.TokensAt(now) >= 1)
}

// countFailure counts a wrong signature.
func (f failureLimit) countFailure(host string, now time.Time) {
	of, ok := f.hosts.Get(host)
	if !ok {
		of = rate.NewLimiter(maxFailuresOfHost, maxFailuresOfHost)
		f.hosts.Put(host, of, 1)
	}
	of.AllowN(now, 1)
	f.total.AllowN(now, 1)
}
