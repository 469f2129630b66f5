package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// NewTransport returns the connection pool that all servers share. It does not decompress replies.
func NewTransport() *http.Transport {
	dialer := net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := c.(*net.TCPConn); ok {
				return pooledConn{tcp}, nil
			}
			return c, err
		},
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true, // a decompression bomb stays compressed
		ForceAttemptHTTP2:     true,
	}
}

// pooledConn is a TCP connection that copies request bodies through pooled buffers. The standard library
// would allocate one per request.
type pooledConn struct{ *net.TCPConn }

const copyBufferBytes = 64 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBufferBytes]byte) }}

// ReadFrom writes what r returns. There is never a file behind r that sendfile could send.
func (c pooledConn) ReadFrom(r io.Reader) (sent int64, err error) {
	buf, _ := copyBuffers.Get().(*[copyBufferBytes]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			m, err := c.Write(buf[:n])
			if sent += int64(m); err != nil {
				return sent, err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return sent, nil
		case err != nil:
			return sent, err
		}
	}
}
