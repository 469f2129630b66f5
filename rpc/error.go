package rpc

import (
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// AppendError appends an error reply. The id keeps its bytes; without one it is null. A reason
// that is not empty becomes data.reason, the word a program can act on.
func AppendError(dst []byte, id ID, code int, message, reason string) []byte {
	var data []byte
	if reason != "" {
		data = append(jsonscan.AppendString([]byte(`{"reason":`), reason), '}')
	}
	return AppendErrorData(dst, id, code, message, data)
}

// AppendErrorData is AppendError with data that is JSON already; nil for none.
func AppendErrorData(dst []byte, id ID, code int, message string, data []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id.Raw()...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = jsonscan.AppendString(dst, message)
	if data != nil {
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, "}}"...)
}

// AppendResult appends a reply with a result that is JSON already.
func AppendResult(dst []byte, id ID, result []byte) []byte {
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), id.Raw()...)
	return append(append(append(dst, `,"result":`...), result...), '}')
}
