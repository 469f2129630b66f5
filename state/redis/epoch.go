package redis

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/redis/rueidis"

	"github.com/ctxgate/ctxgate/state"
)

// Epoch implements [state.Driver]. Each primary has a random value, in its first partition, which goes when the primary is
// emptied. The epoch is all of them together.
func (d *Driver) Epoch(ctx context.Context) (state.Epoch, error) {
	if err := d.begin(ctx); err != nil {
		return 0, err
	}
	defer d.end()
	values, err := d.readEpochs(ctx)
	if err != nil {
		return 0, err
	}
	if slices.Contains(values, "") {
		if err := d.makeEpochs(ctx, values); err != nil {
			return 0, err
		}
		if values, err = d.readEpochs(ctx); err != nil {
			return 0, err
		}
	}
	sum := fnv.New64a()
	for _, v := range values {
		_, _ = io.WriteString(sum, v+" ")
	}
	return state.Epoch(sum.Sum64()), nil
}

func (d *Driver) epochKey(partition int) string { return d.base(partition) + "e" }

// readEpochs returns "" for a value that is not there.
func (d *Driver) readEpochs(ctx context.Context) ([]string, error) {
	var reads []rueidis.Completed
	for _, p := range d.topology.Load().epochs {
		reads = append(reads, d.client.B().Get().Key(d.epochKey(p)).Build())
	}
	values := make([]string, len(reads))
	for i, r := range d.client.DoMulti(ctx, reads...) {
		var err error
		if values[i], err = r.ToString(); err != nil && !rueidis.IsRedisNil(err) {
			return nil, d.asFault(ctx, err)
		}
	}
	return values, nil
}

// makeEpochs sets the values that are not there.
func (d *Driver) makeEpochs(ctx context.Context, values []string) error {
	var sets []*command
	for i, p := range d.topology.Load().epochs {
		if i < len(values) && values[i] == "" {
			c := d.newEpochCommand(p)
			c.args = append(c.args, "NX")
			sets = append(sets, c)
		}
	}
	return d.write(ctx, sets)
}

// newEpochCommand changes the epoch.
func (d *Driver) newEpochCommand(partition int) *command {
	return &command{partition: partition, args: []string{"SET", d.epochKey(partition), fmt.Sprintf("%016x", rand.Uint64())}}
}
