// Package rpc parses and writes the JSON-RPC 2.0 envelope, strictly, as bytes. It locates the parts of
// a message without copying them, so that what is forwarded is what arrived.
//
// Path through the files: request.go parses what a client sends, message.go what a server sends, id.go
// compares ids; this file holds what both parsers share and writes replies.
//
// Routing and policy rely on one parse, so it rejects whatever another parser could read differently:
// duplicate keys (at any depth of a request; in the envelope of a reply), protocol keys in other
// letter case, bytes that are not UTF-8, lone surrogates, data after the message. The package does no
// I/O. It fails only by rejecting, with a fault of kind Syntax (not JSON) or Invalid (JSON, but not
// this protocol).
package rpc

import (
	"errors"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// The keys that routing and policy read. Other spellings of them are rejected.
var (
	envelopeKeys = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramsKeys   = []string{"name", "uri", "arguments", "_meta", "proxy", "cursor", "ref", "taskId", "requestState", "inputResponses"}
	errorKeys    = []string{"code", "message", "data"}
)

// scanEnvelope reads one message: an object, member by member, and nothing after it.
func scanEnvelope(s *jsonscan.Scanner, member func(key []byte) error) error {
	if s.Kind() != '{' {
		// Tell JSON that is not an object from text that is not JSON.
		if _, err := s.Skip(); err != nil {
			return err
		}
		if err := s.End(); err != nil {
			return err
		}
		return invalid("the message must be one JSON object")
	}
	if err := s.Object(envelopeKeys, member); err != nil {
		return err
	}
	return s.End()
}

// toFault classifies a scanner's error: a document with duplicate keys, misspelled keys or too much
// nesting is invalid; anything else is not JSON.
func toFault(err error) error {
	var e *jsonscan.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Reason {
	case jsonscan.DuplicateKey, jsonscan.FoldedKey, jsonscan.TooDeep, jsonscan.TooMany:
		return fault.Wrap(fault.InvalidRequest, "invalid request: "+e.Error(), err)
	}
	return fault.Wrap(fault.Syntax, "not valid JSON: "+e.Error(), err)
}

func invalid(text string) error { return fault.New(fault.InvalidRequest, "invalid request: "+text) }

// isVersion reports whether the value at the cursor is the string "2.0", however escaped.
func isVersion(s *jsonscan.Scanner, body []byte) (bool, error) {
	if s.Kind() != '"' {
		_, err := s.Skip()
		return false, err
	}
	str, err := s.Str()
	return err == nil && str.Chars == 3 && string(jsonscan.AppendDecoded(nil, str.Of(body))) == "2.0", err
}

// AppendError appends an error reply. The id keeps its bytes; without one it is null. A reason that is
// not empty becomes data.reason, for programs.
func AppendError(dst []byte, id ID, code int, message, reason string) []byte {
	var data []byte
	if reason != "" {
		data = append(jsonscan.AppendQuoted([]byte(`{"reason":`), reason), '}')
	}
	return AppendErrorData(dst, id, code, message, data)
}

// AppendErrorData is AppendError with data that is already JSON; nil for none.
func AppendErrorData(dst []byte, id ID, code int, message string, data []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id.Raw()...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = jsonscan.AppendQuoted(dst, message)
	if data != nil {
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, "}}"...)
}

// AppendResult appends a reply with a result that is already JSON.
func AppendResult(dst []byte, id ID, result []byte) []byte {
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), id.Raw()...)
	return append(append(append(dst, `,"result":`...), result...), '}')
}
