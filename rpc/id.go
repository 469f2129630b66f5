package rpc

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// ID is a message's id, byte for byte as its sender wrote it: a string, a number or null. The zero ID
// means that the message has none.
type ID struct{ raw []byte }

// RawID makes an ID of JSON bytes that are known to be valid.
func RawID(raw []byte) ID { return ID{raw} }

// IsSet reports whether the message had an id, null included.
func (id ID) IsSet() bool { return id.raw != nil }

// Raw is the id's JSON; "null" when there is none.
func (id ID) Raw() []byte {
	if id.raw == nil {
		return []byte("null")
	}
	return id.raw
}

// Equal reports whether two ids are the same value: "a" and "\u0061" are, 1 and 1.0 are, the string "1"
// and the number 1 are not. Numbers are compared as doubles, as most peers hold them: a peer that
// cannot represent 9007199254740993 answers with the nearest number it can.
func (id ID) Equal(other ID) bool {
	a, b := id.Raw(), other.Raw()
	if bytes.Equal(a, b) {
		return true
	}
	if a[0] == '"' || b[0] == '"' {
		return a[0] == b[0] && bytes.Equal(unquote(a), unquote(b))
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	return errX == nil && errY == nil && x == y
}

func unquote(raw []byte) []byte { return jsonscan.AppendDecoded(nil, raw[1:len(raw)-1]) }

func scanID(s *jsonscan.Scanner, body []byte) (ID, error) {
	kind := s.Kind()
	span, err := s.Skip()
	if err != nil {
		return ID{}, err
	}
	if kind == '{' || kind == '[' || kind == 't' || kind == 'f' {
		return ID{}, invalid(`"id" must be a string, a number or null`)
	}
	return ID{span.Of(body)}, nil
}

// salvageID finds the id of a rejected message. It finds none if the id would be ambiguous: in text that
// is not JSON, and where there are two ids.
func salvageID(body []byte, depth int) ID {
	s := jsonscan.New(body, depth)
	var found ID
	ids := 0
	err := s.Members(func(key []byte) (err error) {
		if strings.EqualFold(string(key), "id") {
			ids++
			found, err = scanID(s, body)
		}
		return err
	})
	if err != nil || s.End() != nil || ids != 1 {
		return ID{}
	}
	return found
}
