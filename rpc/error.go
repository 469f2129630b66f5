package rpc

import (
	"strconv"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// AppendError appends an error reply. The id keeps its bytes; without one it is null. A reason
// that is not empty becomes data.reason, the word a program can act on.
func AppendError(dst []byte, id ID, code int, message, reason string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id.Raw()...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = jsonscan.AppendString(dst, message)
	if reason != "" {
		dst = append(dst, `,"data":{"reason":`...)
		dst = jsonscan.AppendString(dst, reason)
		dst = append(dst, '}')
	}
	return append(dst, "}}"...)
}
