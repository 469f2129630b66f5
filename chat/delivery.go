package chat

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
)

// delivery is how much of a request reached its provider. A provider can only execute what it has as a
// whole: the body is one JSON document.
type delivery struct {
	read    atomic.Bool  // the transport has taken the whole body
	written atomic.Int32 // what the transport says of writing it
}

// What the transport says of writing a request.
const (
	writtenUnknown int32 = iota // nothing yet
	writtenWhole
	writtenPart // it failed before the end
)

// watch lets the transport say how it got on.
func (d *delivery) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err != nil {
			d.written.CompareAndSwap(writtenUnknown, writtenPart)
			return
		}
		d.written.Store(writtenWhole)
	}})
}

// whole says whether the provider may have the whole request.
func (d *delivery) whole() bool {
	switch d.written.Load() {
	case writtenWhole:
		return true
	case writtenPart:
		return false
	}
	return d.read.Load() // the transport is still at it, or says nothing
}
