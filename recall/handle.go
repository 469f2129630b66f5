package recall

import (
	"encoding/base32"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
)

// An id is "prn_" and 128 bits in Crockford's base32, lower case: letters a model copies without
// error, none of which it can mistake for another.
const (
	idPrefix = "prn_"
	idBytes  = 16
	idLen    = 26
	alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
)

var crockford = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

func formatID(sum [idBytes]byte) string { return idPrefix + crockford.EncodeToString(sum[:]) }

// ErrUnknown is the one answer for an id that never was, has expired, is malformed, or belongs
// to another tenant: nobody can tell which.
var ErrUnknown error = fault.New(fault.Unknown, "unknown or expired prune_id")

// unknown is ErrUnknown with its cause, for the log.
func unknown(cause error) error { return fault.Wrap(fault.Unknown, ErrUnknown.Error(), cause) }

// likelyMeant maps the letters Crockford left out to the digits they look like.
var likelyMeant = strings.NewReplacer("o", "0", "i", "1", "l", "1")

// ParseID reads an id as a person or a model may have written it: any case, o for 0, i or l for
// 1. It returns the one form that is stored and shown.
func ParseID(s string) (string, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	digits, ok := strings.CutPrefix(s, idPrefix)
	if !ok {
		return "", ErrUnknown
	}
	digits = likelyMeant.Replace(digits)
	sum, err := crockford.DecodeString(digits)
	// 26 digits hold two bits more than an id: only one spelling of them is an id's.
	if err != nil || len(digits) != idLen || crockford.EncodeToString(sum) != digits {
		return "", ErrUnknown
	}
	return idPrefix + digits, nil
}
