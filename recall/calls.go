package recall

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/varint"
	"github.com/ctxgate/ctxgate/keyring"
	"github.com/ctxgate/ctxgate/state"
)

// Call is a call whose result was stored: where the text came from, when it was first stored for this
// call, and the call's id as its client knows it, "" if the gateway was not told.
type Call struct {
	Origin
	ID string
	At time.Time
}

// renewCallAfter is when a text that comes again from the same tool, without a call id, counts as
// stored anew: it is listed under the later time.
const renewCallAfter = time.Hour

// A call has two items:
//
//	call/TAG/CALL/ID/ORIGIN  the call, sealed; found by its id. CALL and ORIGIN are keyed hashes.
//	time/TAG/TIME/ID/HASH    CALL/ID/ORIGIN. TIME counts down, so that the list of keys begins with the newest call.
//
// Both are in a group with the name of the first key. They are not in the group of the original, which may be stored for any
// number of calls as long as it is used.
func (k tenantKeys) callsOf(callID string) string {
	return k.callPrefix() + k.hashName(callID, 10) + "/"
}

func (k tenantKeys) callPrefix() string  { return "call/" + k.tag + "/" }
func (k tenantKeys) timesPrefix() string { return "time/" + k.tag + "/" }

func (k tenantKeys) callKey(id, callID string, from Origin) string {
	return k.callsOf(callID) + id + "/" + k.hashName(from.Server+"\x00"+from.Tool, 8)
}

// lastTime is where TIME counts down from: a time in the year 2527.
const lastTime = 1 << 44

func (k tenantKeys) timeKey(at time.Time, id, callKey string) string {
	return fmt.Sprintf("%s%011x/%s/%s", k.timesPrefix(), lastTime-at.UnixMilli(), id, k.hashName(callKey, 8))
}

// parseTimeKey reads the time and the id of the original in a key of timesPrefix.
func (k tenantKeys) parseTimeKey(key string) (at time.Time, id string, ok bool) {
	hexTime, rest, _ := strings.Cut(strings.TrimPrefix(key, k.timesPrefix()), "/")
	id, _, ok = strings.Cut(rest, "/")
	down, err := strconv.ParseInt(hexTime, 16, 64)
	if err != nil || !ok {
		return time.Time{}, "", false
	}
	return time.UnixMilli(lastTime - down), id, true
}

// hashName hides a name in a key of the store.
func (k tenantKeys) hashName(name string, bytes int) string {
	h := hmac.New(sha256.New, k.call)
	_, _ = h.Write([]byte(name))
	return crockford.EncodeToString(h.Sum(nil)[:bytes])
}

const callVersion = 1

func sealCall(with keyring.Cipher, key string, c Call) []byte {
	b := varint.AppendInt64([]byte{callVersion}, c.At.UnixMilli())
	b = varint.AppendString(varint.AppendString(varint.AppendString(b, fault.Clip(c.ID)), c.Server), c.item())
	return with.Seal(b, []byte(key))
}

func unsealCall(with keyring.Cipher, key string, sealed []byte) (c Call, err error) {
	b, err := with.Open(sealed, []byte(key))
	if err != nil {
		return c, unknownID(err)
	}
	d := varint.NewDecoder(b)
	if d.Byte() != callVersion {
		return c, errManifest
	}
	c = Call{At: time.UnixMilli(d.Int64()), ID: d.String(), Origin: newOrigin(d.String(), d.String())}
	if d.Failed() {
		return Call{}, errManifest
	}
	return c, nil
}

// callItems returns the items that make a call of an original findable; none if they are stored, and
// then their lease is renewed.
func (r *Recall) callItems(ctx context.Context, k tenantKeys, id string, with keyring.Cipher, c Call) []state.Item {
	c.At = r.store.Now()
	key := k.callKey(id, c.ID, c.Origin)
	if stored, err := r.readCall(ctx, key, with); err == nil && (c.ID != "" || c.At.Sub(stored.At) < renewCallAfter) {
		if found, err := r.store.Touch(ctx, key); found && err == nil {
			return nil
		}
	}
	return []state.Item{
		{Key: key, Group: key, Value: sealCall(with, key, c)},
		{Key: k.timeKey(c.At, id, key), Group: key, Value: []byte(strings.TrimPrefix(key, k.callPrefix()))},
	}
}

func (r *Recall) readCall(ctx context.Context, key string, with keyring.Cipher) (Call, error) {
	sealed, err := r.store.Get(ctx, key)
	if err != nil {
		return Call{}, err
	}
	return unsealCall(with, key, sealed)
}
