package main

import "time"

// Costs are what the parts of a call cost. They were measured with the code of this repository (measure.go) on the machine that
// [cputime] takes as its reference, and costs_test.go measures them again: processor time within costTolerance, counts
// and bytes within countTolerance.
type Costs struct {
	// Processor time of the gateway for one request.
	Call       time.Duration // a tool call with a small result, which keeps nothing
	LargeCall  time.Duration // one with a result of 1 MiB that is not cut
	Keep       time.Duration // one whose result of 8 KiB is cut and kept
	LargeKeep  time.Duration // one whose result of 1 MiB is
	ReadBack   time.Duration // recover_text of 8 KiB
	ShortModel time.Duration // a model request of a short conversation, of shortModelBytes
	LongModel  time.Duration // of a long one, of longModelBytes
	MaskAgain  time.Duration // more for each original that a request masks where it is not stored

	// What recall gives to the store.
	KeptPuts    float64 // Put calls for a kept result
	KeptItems   float64 // items for it
	StoredShare float64 // stored bytes for each byte of an original, compressed and sealed
	ItemBytes   float64 // stored bytes for a kept result beside its text: keys, groups, metadata
	SmallBytes  float64 // the part of them that stays in Redis when texts go to a bucket
	ReadGets    float64 // Get calls for a read back

	// What Redis does for an original of 8 KiB.
	RedisWrite  time.Duration // processor time of the primary for one that is kept
	RedisRead   time.Duration // for one that is read back
	RedisBytes  float64       // that it receives
	RedisMemory float64       // that it then holds

	// What masking old results in model requests keeps.
	MaskedPerTurn float64 // originals for each turn of a conversation
	MaskedBytes   float64 // of each, as stored
}

// measured are the costs. To renew them: go run ./tools/scalesim -measure.
var measured = Costs{
	Call:       190 * time.Microsecond,
	LargeCall:  2100 * time.Microsecond,
	Keep:       650 * time.Microsecond,
	LargeKeep:  11 * time.Millisecond,
	ReadBack:   180 * time.Microsecond,
	ShortModel: 330 * time.Microsecond,
	LongModel:  800 * time.Microsecond,
	MaskAgain:  450 * time.Microsecond,

	KeptPuts: 1, KeptItems: 4, StoredShare: .229, ItemBytes: 1218, SmallBytes: 663, ReadGets: 1,
	RedisWrite: 450 * time.Microsecond, RedisRead: 15 * time.Microsecond, RedisBytes: 5800, RedisMemory: 5300,
	MaskedPerTurn: .62, MaskedBytes: 3480,
}

// Mean sizes of the requests that were measured.
const (
	shortModelBytes = 72_000
	longModelBytes  = 330_000
)

const (
	costTolerance  = 2.0 // measured processor time is within this factor: processors differ, and machines are busy
	countTolerance = 1.1
)

// costRow is one cost in use beside the one that was measured now.
type costRow struct {
	name, inUse, measured string
	ratio, tolerance      float64
}

// compareCosts lists all costs.
func compareCosts(c Costs) []costRow {
	var rows []costRow
	duration := func(name string, inUse, now time.Duration) {
		rows = append(rows, costRow{name, inUse.String(), now.Round(time.Microsecond).String(), float64(now) / float64(inUse), costTolerance})
	}
	count := func(name string, inUse, now float64) {
		rows = append(rows, costRow{name, number(inUse), number(now), now / inUse, countTolerance})
	}
	duration("Call", measured.Call, c.Call)
	duration("LargeCall", measured.LargeCall, c.LargeCall)
	duration("Keep", measured.Keep, c.Keep)
	duration("LargeKeep", measured.LargeKeep, c.LargeKeep)
	duration("ReadBack", measured.ReadBack, c.ReadBack)
	duration("ShortModel", measured.ShortModel, c.ShortModel)
	duration("LongModel", measured.LongModel, c.LongModel)
	duration("MaskAgain", measured.MaskAgain, c.MaskAgain)
	count("KeptPuts", measured.KeptPuts, c.KeptPuts)
	count("KeptItems", measured.KeptItems, c.KeptItems)
	count("StoredShare", measured.StoredShare, c.StoredShare)
	count("ItemBytes", measured.ItemBytes, c.ItemBytes)
	count("SmallBytes", measured.SmallBytes, c.SmallBytes)
	count("ReadGets", measured.ReadGets, c.ReadGets)
	if c.RedisWrite > 0 { // it is installed
		duration("RedisWrite", measured.RedisWrite, c.RedisWrite)
		duration("RedisRead", measured.RedisRead, c.RedisRead)
		count("RedisBytes", measured.RedisBytes, c.RedisBytes)
		count("RedisMemory", measured.RedisMemory, c.RedisMemory)
	}
	count("MaskedPerTurn", measured.MaskedPerTurn, c.MaskedPerTurn)
	count("MaskedBytes", measured.MaskedBytes, c.MaskedBytes)
	return rows
}
