package redis

import (
	"crypto/sha1"
	_ "embed" // of the scripts
	"encoding/hex"
	"strconv"
	"strings"
)

// partitionCount is into how many parts the groups are divided. All keys of a partition are in one slot, so that a script can
// change a group, its indexes and the totals at once. It must never change.
const partitionCount = 32

// partitionTags are hash tags whose slots divide a Cluster's slots evenly.
var partitionTags = makePartitionTags()

func makePartitionTags() (tags [partitionCount]string) {
	for n, left := 0, partitionCount; left > 0; n++ {
		tag := strconv.Itoa(n)
		if p := partitionOf(tag); tags[p] == "" {
			tags[p], left = tag, left-1
		}
	}
	return tags
}

// partitionOf is the partition of a group.
func partitionOf(group string) int { return slotOf(group) * partitionCount / slotCount }

// slotOf is the slot of a hash tag: its CRC-16/XMODEM.
func slotOf(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % slotCount)
}

// partitionSlots are the slots of the partitions' keys.
var partitionSlots = func() (slots [partitionCount]int) {
	for p, tag := range partitionTags {
		slots[p] = slotOf(tag)
	}
	return slots
}()

// base begins all keys of a partition.
func (d *Driver) base(partition int) string { return d.bases[partition] }

func (d *Driver) groupKey(group string) string { return d.base(partitionOf(group)) + "g:" + group }

func makeBases(prefix string) (bases [partitionCount]string) {
	for p, tag := range partitionTags {
		bases[p] = prefix + "{" + tag + "}"
	}
	return bases
}

// script is a Lua script that servers have in memory, under its SHA-1.
type script struct{ text, sha string }

func newScript(parts ...string) *script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

//go:embed lua/index.lua
var indexLua string

//go:embed lua/put.lua
var putLua string

//go:embed lua/touch.lua
var touchLua string

//go:embed lua/acked.lua
var ackedLua string

//go:embed lua/remove.lua
var removeLua string

//go:embed lua/recount.lua
var recountLua string

var (
	putScript     = newScript(indexLua, putLua)
	touchScript   = newScript(indexLua, touchLua)
	ackedScript   = newScript(ackedLua)
	removeScript  = newScript(indexLua, removeLua)
	recountScript = newScript(indexLua, recountLua)
	allScripts    = []*script{putScript, touchScript, ackedScript, removeScript, recountScript}
)
