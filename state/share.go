package state

import (
	"context"
	"sync"

	"github.com/ctxgate/ctxgate/fault"
)

var errShareFull = fault.New(fault.Full, "the tenant's share of the store is full (state.tenant_share)")

// maxShareSlack is how much more than it needs a Put evicts of its owner at most, so that not every Put
// of a tenant that has used its share up evicts.
const maxShareSlack = 4 << 20

// pendingOwned are the bytes of the Puts in flight in this process, by owner.
type pendingOwned struct {
	mu    sync.Mutex
	bytes map[string]int64
}

// addBytes adds to the bytes of an owner and returns their sum.
func (p *pendingOwned) addBytes(owner string, bytes int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes == nil {
		p.bytes = map[string]int64{}
	}
	p.bytes[owner] += bytes
	sum := p.bytes[owner]
	if sum == 0 {
		delete(p.bytes, owner)
	}
	return sum
}

// ownerShare is the most bytes that an owner may have, 0 for no limit.
func (s *Store) ownerShare() int64 {
	if s.config.TenantShare >= 1 {
		return 0
	}
	return int64(s.config.TenantShare * float64(s.config.MaxBytes))
}

// makeShareRoom returns nil when a Put's bytes are within its owner's share, if necessary after some of the
// owner's own groups were evicted. The gateway's own groups have no share.
func (s *Store) makeShareRoom(ctx context.Context, n need) error {
	share := s.ownerShare()
	if share == 0 || n.owner == "" || n.bytes == 0 {
		return nil
	}
	if n.bytes > share {
		return errShareFull // an eviction would remove all that the owner has for nothing
	}
	pending := s.pendingOwned.addBytes(n.owner, 0)
	owned, err := s.bytesOf(ctx, n.owner)
	if err != nil || owned+pending <= share {
		return err
	}
	return s.evictInTime(ctx, func(ctx context.Context) error {
		sweep := s.newSweep(min(pending+min(share/10, maxShareSlack), share))
		sweep.Owner, sweep.OwnerMax = n.owner, share
		if _, err := s.sweep(ctx, sweep); err != nil {
			return err
		}
		owned, err := s.bytesOf(ctx, n.owner)
		if err == nil && owned+s.pendingOwned.addBytes(n.owner, 0) > share {
			err = errShareFull // all that is left is spared
		}
		return err
	})
}

// bytesOf is how many bytes an owner has.
func (s *Store) bytesOf(ctx context.Context, owner string) (int64, error) {
	owners, err := s.driver.Owners(ctx, owner)
	for _, o := range owners {
		if o.Owner == owner {
			return o.Bytes, err
		}
	}
	return 0, err
}

// sweepShares brings owners that are over their share, as after it was made smaller, back to it.
func (s *Store) sweepShares(ctx context.Context) error {
	share := s.ownerShare()
	if share == 0 {
		return nil
	}
	_, err := withTimeout(ctx, sweepEvery, func(ctx context.Context) (struct{}, error) {
		owners, err := s.driver.Owners(ctx, "")
		for _, o := range owners {
			if o.Owner == "" || o.Bytes <= share || err != nil {
				continue
			}
			sweep := s.newSweep(0)
			sweep.Owner, sweep.OwnerMax = o.Owner, share/100*lowWater
			_, err = s.sweep(ctx, sweep)
		}
		return struct{}{}, err
	})
	return err
}
