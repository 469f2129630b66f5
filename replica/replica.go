// Package replica connects the replicas of one gateway behind a load balancer. What lives in one process (a call that
// waits for input, the session of a legacy client, a child process) is reached from every other: a replica forwards the
// client's HTTP request to the one that has it, and the reply back.
//
// Path through the files: replica.go is this process among the replicas, with its id and the lease by which others
// find it; members.go counts the processes that share a store; forward.go forwards a request; keys.go makes the listener reachable for replicas alone; config.go is the
// configuration.
//
// Invariants: nobody without the root secret can make a connection to the listener, or be taken for a replica by
// connecting somewhere else. A request is forwarded once. [ErrGone] means that the other replica did not start
// to serve the request; after every other failure it may have. Leases only say where a replica is: whether it is there
// is known by connecting. Without the store, replicas that are known are still reached.
package replica

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/state"
)

const (
	leaseLifetime = 5 * time.Second
	renewInterval = 1500 * time.Millisecond
	storeTimeout  = 500 * time.Millisecond // of one look-up of a lease
	addressAge    = 2 * time.Second        // after which a lease is read again
	maxKnown      = 1 << 12                // replicas whose address is remembered, in each generation

	leasePrefix = "replica "
)

// ErrGone says that a replica is gone, and has not started to serve the request.
var ErrGone = fault.New(fault.Unavailable, "the replica that held this is gone")

// Replica is this process among the replicas.
type Replica struct {
	id     string
	leases state.Leases
	keys   keys
	client *http.Transport

	mu      sync.Mutex
	address string
	known   *gencache.Cache[string, location]
	end     context.CancelFunc
	ended   chan struct{}
}

// location is where a replica was found.
type location struct {
	address string // "" where it is gone
	at      time.Time
}

// New returns this process as a replica. Others find it once it is announced.
func New(leases state.Leases, root []byte, oldRoots ...[]byte) (*Replica, error) {
	k, err := newKeys(root, oldRoots)
	if err != nil {
		return nil, err
	}
	return &Replica{
		id: rand.Text(), leases: leases, keys: k, known: gencache.New[string, location](maxKnown),
		client: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}).DialContext,
			TLSClientConfig: k.clientTLS(), TLSHandshakeTimeout: ackTimeout,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		},
	}, nil
}

// ID names this process. No other has ever had the same.
func (r *Replica) ID() string { return r.id }

// ServerTLS is the configuration of the listener.
func (r *Replica) ServerTLS() *tls.Config { return r.keys.serverTLS() }

// Announce lets other replicas find this one at an address, until Close.
func (r *Replica) Announce(ctx context.Context, address string) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.mu.Lock()
	r.address, r.end, r.ended = address, cancel, make(chan struct{})
	ended := r.ended
	r.mu.Unlock()
	renew := func() bool {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		held, err := r.leases.Hold(ctx, leasePrefix+r.id, []byte(address), leaseLifetime)
		if err != nil {
			slog.WarnContext(ctx, "the lease of this replica was not renewed: others may not find it", "error", err)
		}
		return held && err == nil
	}
	renew()
	go func() {
		defer close(ended)
		t := time.NewTicker(renewInterval)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				renew()
			}
		}
	}()
}

// Close ends the lease, so that others know at once that this replica is gone.
func (r *Replica) Close() {
	r.mu.Lock()
	end, ended, address := r.end, r.ended, r.address
	r.end = nil
	r.mu.Unlock()
	if end != nil {
		end()
		<-ended
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		if err := r.leases.Release(ctx, leasePrefix+r.id, []byte(address)); err != nil {
			slog.Debug("the lease of this replica was not released", "error", err)
		}
	}
	r.client.CloseIdleConnections()
}

// addressOf finds a replica. Where its lease has ended but it was there a moment ago, the address is still tried: the
// lease may have been lost with the store.
func (r *Replica) addressOf(ctx context.Context, id string) (string, error) {
	last, isKnown := r.known.Get(id)
	if isKnown && time.Since(last.at) < addressAge {
		if last.address == "" {
			return "", ErrGone
		}
		return last.address, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	address, err := r.leases.Held(ctx, leasePrefix+id)
	switch {
	case err != nil && last.address != "":
		return last.address, nil
	case err != nil:
		return "", fault.Wrap(fault.Unavailable, "the store does not say where a replica is: try again", err)
	case address == nil && last.address != "":
		return last.address, nil
	}
	r.known.Put(id, location{string(address), time.Now()}, 1)
	if address == nil {
		return "", ErrGone
	}
	return string(address), nil
}

// IsGone reports whether a replica is known to be gone.
func (r *Replica) IsGone(ctx context.Context, id string) (bool, error) {
	_, err := r.addressOf(ctx, id)
	if errors.Is(err, ErrGone) {
		return true, nil
	}
	return false, err
}

// markGone remembers that a replica is gone.
func (r *Replica) markGone(id string) { r.known.Put(id, location{"", time.Now()}, 1) }

// Hold sets a value that all replicas share, for a lifetime, if there is none. It returns the value that is held
// then: this one or another replica's.
func (r *Replica) Hold(ctx context.Context, key, value string, lifetime time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for range 3 { // another value may expire between the two
		held, err := r.leases.Hold(ctx, key, []byte(value), lifetime)
		if err != nil {
			return "", fault.Wrap(fault.Unavailable, "the store that the replicas share does not answer: try again", err)
		}
		if held {
			return value, nil
		}
		other, err := r.Held(ctx, key)
		if err != nil || other != "" {
			return other, err
		}
	}
	return "", fault.New(fault.Unavailable, "the store that the replicas share changes too often: try again")
}

// Held returns a shared value; "" for none.
func (r *Replica) Held(ctx context.Context, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	value, err := r.leases.Held(ctx, key)
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, "the store that the replicas share does not answer: try again", err)
	}
	return string(value), nil
}

// Drop removes a shared value, if it is this one.
func (r *Replica) Drop(ctx context.Context, key, value string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := r.leases.Release(ctx, key, []byte(value)); err != nil {
		return fault.Wrap(fault.Unavailable, "the store that the replicas share does not answer: try again", err)
	}
	return nil
}
